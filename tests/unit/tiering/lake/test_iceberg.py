from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from appliance.tiering.lake import iceberg
from appliance.tiering.lake.iceberg import IcebergFailed, IcebergTables, commit_files, files_property, open_tables
from appliance.tiering.lake.schema import parse_schema
from appliance.tiering.lake.spec import BadSpec
from appliance.tiering.lake.writer import file_schema
from tests.support.laked import AT_ONCE, OUTPUT, Laked
from tests.support.tier_objects import TOPIC

SPEC = replace(AT_ONCE, format="iceberg")


class Tables(Laked):
    def __init__(self, path: Path) -> None:
        super().__init__(path, retention_ms=-1)
        self.catalog = self.open()

    def open(self) -> IcebergTables:
        return open_tables("", "appliance", self.store.url, str(self.path))

    def publish(self) -> int:
        return self.catalog.publish(self.store, OUTPUT, self.ledger)

    @property
    def table(self) -> Any:
        return self.catalog._catalog.load_table(self.catalog.table_name(OUTPUT, TOPIC))

    def numbers(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("n").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_files_are_in_the_table_once_however_often_they_are_published(lake: Tables) -> None:
    lake.put([{"n": 0}, {"n": 1}, b"no json"])
    lake.worker().work(SPEC)
    assert [lake.publish(), lake.publish(), lake.open().publish(lake.store, OUTPUT, lake.ledger)] == [2, 2, 2]
    lake.put([{"n": 2, "more": {"text": "x"}}])
    lake.worker().work(SPEC)
    assert lake.publish() == 3
    assert lake.numbers() == [0, 1, 2]
    assert lake.table.properties["appliance.lake.00000.next-offset"] == "4"


def test_fields_that_name_folders_are_columns_of_the_table(lake: Tables) -> None:
    lake.put([{"n": 0, "country": "C/H"}, {"n": 1, "country": None}])
    lake.worker().work(replace(SPEC, partition_by=("day", "country")))
    lake.publish()
    rows = lake.table.scan(row_filter="n = 0").to_arrow().to_pylist()
    assert [row["country"] for row in rows] == ["C/H"]


def test_a_worker_that_was_long_away_adds_nothing(lake: Tables) -> None:
    """Both have loaded the table before either commits."""
    lake.put([{"n": 0}])
    lake.worker().work(SPEC)
    lake.publish()
    lake.put([{"n": 1}])
    lake.worker().work(SPEC)
    zombie = lake.table
    lake.publish()
    path = f"{lake.store.url}/{OUTPUT.folder}{lake.ledger.files[1].name}"
    with pytest.raises(CommitFailedException):
        commit_files(zombie, file_schema(parse_schema(lake.ledger.schema)), [path], {files_property(0): "2"})
    assert lake.numbers() == [0, 1]


def test_a_lost_answer_of_the_catalog_doubles_nothing(lake: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.put([{"n": 0}])
    lake.worker().work(SPEC)

    def losing(*arguments: Any) -> None:
        commit_files(*arguments)
        raise OSError("connection reset")

    monkeypatch.setattr(iceberg, "commit_files", losing)
    with pytest.raises(IcebergFailed, match="reset"):
        lake.publish()
    monkeypatch.setattr(iceberg, "commit_files", commit_files)
    assert lake.publish() == 1 and lake.numbers() == [0]


def test_a_lost_catalog_is_made_again_from_the_ledger(lake: Tables) -> None:
    for n in range(3):
        lake.put([{"n": n}])
        lake.worker().work(SPEC)
    lake.publish()
    (lake.path / "iceberg.db").unlink()
    lake.catalog = lake.open()
    assert lake.publish() == 3 and lake.numbers() == [0, 1, 2]


def test_a_wrong_catalog_is_told(tmp_path: Path) -> None:
    for text in ("rest", "type=none"):
        with pytest.raises(BadSpec, match=r"lake\.iceberg\.catalog"):
            open_tables(text, "appliance", tmp_path.as_uri(), str(tmp_path))
