"""Iceberg tables in catalogs that the config names: REST over HTTP, and Glue as moto has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.tiering.lake.iceberg import IcebergFailed, IcebergTables, open_tables
from appliance.tiering.s3 import S3Store
from tests.support.laked import AT_ONCE, OUTPUT, Laked
from tests.support.moto_server import MotoServer
from tests.support.rest_catalog import RestCatalog
from tests.support.tier_objects import TOPIC

SPEC = replace(AT_ONCE, format="iceberg")


def numbers(tables: IcebergTables) -> list[int]:
    table = tables._catalog.load_table(tables.table_name(OUTPUT, TOPIC))
    return sorted(table.scan().to_arrow().column("n").to_pylist())


def work(lake: Laked, tables: IcebergTables, *values: int) -> int:
    lake.put([{"n": n} for n in values])
    lake.worker().work(SPEC)
    return tables.publish(lake.store, OUTPUT, lake.ledger)


def test_a_rest_catalog_by_config(tmp_path: Path) -> None:
    lake = Laked(tmp_path, retention_ms=-1)
    with RestCatalog(tmp_path, f"{lake.store.url}/lake/iceberg") as rest:
        tables = open_tables(f"type=rest,uri={rest.url}", "appliance", lake.store.url, str(tmp_path))
        assert work(lake, tables, 0, 1) == 1
        again = open_tables(f"type=rest,uri={rest.url}", "appliance", lake.store.url, str(tmp_path))
        assert again.publish(lake.store, OUTPUT, lake.ledger) == 1
        assert work(lake, again, 2) == 2
        assert numbers(tables) == [0, 1, 2]


def test_a_commit_whose_outcome_a_rest_catalog_does_not_tell_doubles_nothing(tmp_path: Path) -> None:
    lake = Laked(tmp_path, retention_ms=-1)
    with RestCatalog(tmp_path, f"{lake.store.url}/lake/iceberg") as rest:
        tables = open_tables(f"type=rest,uri={rest.url}", "appliance", lake.store.url, str(tmp_path))
        rest.failing = 1
        with pytest.raises(IcebergFailed):
            work(lake, tables, 0, 1)
        assert tables.publish(lake.store, OUTPUT, lake.ledger) == 1
        assert numbers(tables) == [0, 1]


def test_glue_by_config(moto: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in moto.environment.items():
        monkeypatch.setenv(name, value)
    bucket = moto.bucket()
    lake = Laked(tmp_path, S3Store(bucket, "", moto.client_options), retention_ms=-1)
    keys = "{0}.access-key-id=testing,{0}.secret-access-key=testing,{0}.region=us-east-1,{0}.endpoint={1}"
    catalog = ",".join(["type=glue", *(keys.format(part, moto.endpoint_url) for part in ("glue", "s3"))])
    tables = open_tables(catalog, f"appliance_{bucket[-6:]}", lake.store.url, str(tmp_path))
    assert work(lake, tables, 0, 1) == 1
    assert work(lake, tables, 2) == 2
    assert tables.publish(lake.store, OUTPUT, lake.ledger) == 2
    assert numbers(tables) == [0, 1, 2]


def test_a_catalog_that_does_not_answer_is_tried_again_later(tmp_path: Path) -> None:
    lake = Laked(tmp_path, retention_ms=-1)
    with RestCatalog(tmp_path, f"{lake.store.url}/lake/iceberg") as rest:
        tables = open_tables(f"type=rest,uri={rest.url}", "appliance", lake.store.url, str(tmp_path))
    with pytest.raises(IcebergFailed):
        work(lake, tables, 0)
