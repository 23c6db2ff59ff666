from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from appliance.base.object_store import StoreUndecided
from appliance.tiering import reader as reader_module
from appliance.tiering.lake import worker as worker_module
from appliance.tiering.lake.ledger import encode_ledger
from appliance.tiering.lake.names import DEAD, ledger_name
from appliance.tiering.lake.outputs import begin_output, current_output, drop_output, sweep
from appliance.tiering.lake.spec import LakeSpec
from tests.support.laked import AT_ONCE, OUTPUT, Laked
from tests.support.tier_objects import TOPIC_ID

DAY_MS = 86_400_000
NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00Z."""


@pytest.fixture
def lake(tmp_path: Path) -> Laked:
    return Laked(tmp_path, retention_ms=-1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "PAUSE_S", 0.0)
    monkeypatch.setattr(worker_module, "PAUSE_S", 0.0)


def test_rows_carry_where_they_come_from(lake: Laked) -> None:
    lake.put([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], timestamp=NOON_MS)
    lake.worker().work(AT_ONCE)
    (first, second) = lake.rows()
    assert (first["_topic"], first["_partition"], first["_offset"], first["_key"]) == ("flights", 0, 0, None)
    assert (second["_offset"], second["_timestamp"].timestamp()) == (1, NOON_MS / 1000 + 0.001)
    assert [(row["id"], row["name"]) for row in (first, second)] == [(1, "a"), (2, "b")]
    assert lake.problems() == []


def test_event_time_decides_the_folder_and_late_rows_go_to_their_own(lake: Laked) -> None:
    spec = replace(AT_ONCE, partition_by=("hour",))
    lake.put([{"n": 0}, {"n": 1}], timestamp=NOON_MS)
    lake.worker().work(spec)
    lake.put([{"n": 2}], timestamp=NOON_MS + DAY_MS)
    lake.put([{"n": 3}], timestamp=NOON_MS + 1)
    lake.worker().work(spec)
    folders = {
        name.rpartition("/")[0]: [row["n"] for row in table.to_pylist()] for name, table in lake.tables().items()
    }
    assert folders == {
        "data/event_date=2026-01-01/event_hour=12": [3],
        "data/event_date=2026-01-02/event_hour=12": [2],
    }
    assert sorted(row["n"] for row in lake.rows()) == [0, 1, 2, 3]
    assert len(lake.tables()) == 3


def test_what_does_not_parse_is_a_dead_letter_with_its_reason(lake: Laked) -> None:
    lake.put([{"n": 0}, b"not json", {"n": "text"}, b"[1]", {"n": 4}, b'{"n":5}{"n":6}', b""])
    lake.worker().work(AT_ONCE)
    assert [(row["_offset"], row["n"]) for row in lake.rows()] == [(0, 0), (4, 4)]
    dead = lake.rows(DEAD)
    assert [(row["_offset"], row["value"]) for row in dead][:2] == [(1, b"not json"), (2, b'{"n": "text"}')]
    assert all(row["error"] for row in dead)
    assert (lake.ledger.rows, lake.ledger.dead) == (2, 5)
    assert lake.problems() == []


def test_nothing_is_made_before_it_is_large_or_old_enough(lake: Laked) -> None:
    spec = LakeSpec(max_age_ms=60_000, max_bytes=1 << 20)
    lake.put([{"n": 0}])
    worker = lake.worker()
    assert worker.work(spec).plan_no == 0
    lake.clock.elapsed_ms += 61_000
    assert worker.work(spec).next_offset == 1
    lake.put([{"n": 1, "text": "x" * (1 << 20)}])
    assert worker.work(spec).next_offset == 2


def test_records_from_the_future_wait_no_longer_than_others(lake: Laked) -> None:
    spec = LakeSpec(max_age_ms=60_000)
    lake.put([{"n": 0}], timestamp=lake.clock.now_ms() + 900 * DAY_MS)
    worker = lake.worker()
    worker.work(spec)
    lake.clock.elapsed_ms += 61_000
    assert worker.work(spec).next_offset == 1


def test_an_inferred_schema_grows_and_old_columns_stay(lake: Laked) -> None:
    lake.put([{"n": 1, "x": 1}, {"n": 2, "x": 1.5}])
    lake.worker().work(AT_ONCE)
    assert lake.ledger.schema == "n bigint, x double"
    lake.put(
        [{"n": 2.5}, {"n": 3, "tags": ["a"], "at": {"city": "Bern"}, "nothing": None, "when": "2026-01-01 00:00:00"}]
    )
    lake.worker().work(AT_ONCE)
    assert lake.ledger.schema == "n bigint, x double, tags array<string>, at struct<city:string>, when string"
    assert [row["_offset"] for row in lake.rows(DEAD)] == [2]
    assert lake.rows()[-1]["at"] == {"city": "Bern"}


def test_a_given_schema_is_kept_to(lake: Laked) -> None:
    schema = "id bigint, at timestamp, born date, price decimal(6,2), where struct<city:string>"
    value = {"id": 1, "at": "2026-01-01T01:00:00+01:00", "born": "2000-02-03", "price": "1.25", "where": {"city": "x"}}
    lake.put([{**value, "more": 1}, {}, {"born": "yesterday"}])
    lake.worker().work(replace(AT_ONCE, schema=schema))
    (row, empty) = lake.rows()
    assert row["at"].isoformat() == "2026-01-01T00:00:00+00:00" and row["born"].isoformat() == "2000-02-03"
    assert str(row["price"]) == "1.25" and "more" not in row
    assert empty["id"] is None
    assert [one["_offset"] for one in lake.rows(DEAD)] == [2]


def test_a_record_without_value_is_a_row_of_nulls(lake: Laked) -> None:
    lake.hosted.append([b'{"n":1}', None, b"no json", b'{"n":2}'])
    lake.hosted.append([None])
    lake.put([{}])
    lake.worker().work(AT_ONCE)
    assert [(row["_offset"], row["n"]) for row in lake.rows()] == [(0, 1), (1, None), (3, 2), (4, None), (5, None)]
    assert lake.ledger.dead == 1 and lake.problems() == []


def test_more_plans_than_one_round_makes_go_on_at_once(lake: Laked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tiering.lake.machine.STEPS_MAX", 3)
    for first in range(4):
        lake.put([{"n": first}])
    worker, spec = lake.worker(), LakeSpec(max_bytes=1, partition_by=())
    rounds = 0
    while worker.work(spec).next_offset < 4:
        rounds += 1
        assert worker.waits_ms == 0
    assert rounds > 1 and lake.problems() == []


def test_csv_and_raw_values(lake: Laked) -> None:
    lake.put([b'1;"a;b"', b"x;y", b"2;", b"3;c\n4;d"])
    spec = replace(AT_ONCE, value_format="csv", schema="n bigint, s string", csv_delimiter=";")
    lake.worker().work(spec)
    assert [(row["n"], row["s"]) for row in lake.rows()] == [(1, "a;b"), (2, "")]
    lake.put([b"\x00\xff"])
    lake.worker().work(replace(AT_ONCE, value_format="raw"))
    assert lake.rows()[-1]["value"] == b"\x00\xff"


def test_a_field_names_the_folder_and_a_name_like_ours_moves_aside(lake: Laked) -> None:
    lake.put([{"country": "C/H", "_offset": 7}, {"country": None, "_offset": 8}, {"country": "x" * 300}])
    lake.worker().work(replace(AT_ONCE, partition_by=("country",)))
    folders = [name.rpartition("/")[0] for name in lake.tables()]
    assert folders == ["data/country=C%2FH", "data/country=__HIVE_DEFAULT_PARTITION__"]
    assert [(row["_offset"], row["_offset_"]) for row in lake.rows()] == [(0, 7), (1, 8)]
    assert [row["_offset"] for row in lake.rows(DEAD)] == [2]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("epoch_ms", NOON_MS),
        ("epoch_ms", str(NOON_MS)),
        ("epoch_s", NOON_MS // 1000),
        ("iso8601", "2026-01-01T13:00:00+01:00"),
        ("%d/%b/%Y:%H:%M:%S", "01/Jan/2026:12:00:00"),
    ],
)
def test_event_time_is_read_from_a_field(lake: Laked, form: str, value: object) -> None:
    lake.put([{"at": {"time": value}}, {"at": {"time": None}}, {"at": {}}])
    lake.worker().work(replace(AT_ONCE, partition_by=("day",), time_field="at.time", time_format=form))
    assert [name.rpartition("/")[0] for name in lake.tables()] == ["data/event_date=2026-01-01"]
    assert [row["_offset"] for row in lake.rows(DEAD)] == [1, 2]


def test_deep_json_does_not_end_the_process(lake: Laked) -> None:
    lake.put([{"n": 1}, b'{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
    lake.worker().work(AT_ONCE)
    assert [row["n"] for row in lake.rows()] == [1]


def test_large_plans_are_cut_into_files(lake: Laked) -> None:
    spec = replace(AT_ONCE, max_bytes=1)
    for first in range(3):
        lake.put([{"n": first}])
    lake.worker().work(spec)
    assert [len(table) for table in lake.tables().values()] == [1, 1, 1]


def test_each_record_is_in_one_file_when_the_policy_fires_differently_on_the_second_run(lake: Laked) -> None:
    """Secor's duplicate case: the first run has uploaded and dies before its offset is kept."""
    for first in range(4):
        lake.put([{"n": first}], timestamp=NOON_MS)
    lake.store.rule = lambda operation, name: "refuse" if operation == "swap" else None
    first_run = lake.worker("first")
    first_run.work(replace(AT_ONCE, max_bytes=2))
    assert lake.ledger.plan is not None and lake.ledger.files == ()
    uploaded = [row.name for row in lake.store.inner.list(OUTPUT.folder + "data/")]
    assert len(uploaded) == 1
    lake.store.rule = lambda operation, name: None
    lake.put([{"n": 4}], timestamp=NOON_MS)
    lake.worker("second").work(replace(AT_ONCE, max_bytes=1 << 30, partition_by=("hour",)))
    assert [row["n"] for row in lake.rows()] == [0, 1, 2, 3, 4]
    assert lake.problems() == []
    assert {row.name for row in lake.store.inner.list(OUTPUT.folder + "data/")} >= set(uploaded)


def test_lost_answers_change_nothing(lake: Laked) -> None:
    for first in range(3):
        lake.put([{"n": first}])
    lost: set[tuple[str, str]] = set()

    def lose_once(operation: str, name: str) -> str | None:
        if operation not in ("create", "swap") or (operation, name) in lost:
            return None
        lost.add((operation, name))
        return "lose"

    lake.store.rule = lose_once
    lake.worker().work(replace(AT_ONCE, max_bytes=1))
    assert [row["n"] for row in lake.rows()] == [0, 1, 2] and lake.problems() == [] and len(lost) > 4


def test_another_file_under_a_plans_name_makes_it_begin_anew(lake: Laked) -> None:
    lake.put([{"n": 1}])
    lake.store.rule = lambda operation, name: "refuse" if "/data/" in name else None
    worker = lake.worker()
    with pytest.raises(StoreUndecided):
        worker.work(AT_ONCE)
    lake.store.rule = lambda operation, name: None
    lake.store.inner.create(OUTPUT.folder + "data/00000-0000000001-0000.parquet", b"something else")
    worker.work(AT_ONCE)
    assert [file.plan for file in lake.ledger.files] == [2] and worker.left_files
    assert [problem.kind for problem in lake.problems()] == ["orphan"]
    assert sweep(lake.store, OUTPUT) == 1 and lake.problems() == []


def test_expired_records_are_skipped_and_named(lake: Laked) -> None:
    lake.put([{"n": 0}])
    lake.put([{"n": 1}])
    manifest = lake.manifest
    lake.write_manifest(replace(manifest, version=manifest.version + 1, start_offset=1, items=manifest.items[1:]))
    lake.worker().work(AT_ONCE)
    assert lake.ledger.skipped == ((0, 1, "expired"),)
    assert [row["n"] for row in lake.rows()] == [1] and lake.problems() == []


def test_a_plan_of_other_code_is_given_up(lake: Laked) -> None:
    lake.put([{"n": 0}])
    lake.store.rule = lambda operation, name: "refuse" if "/data/" in name else None
    with pytest.raises(StoreUndecided):
        lake.worker().work(AT_ONCE)
    lake.store.rule = lambda operation, name: None
    begun = lake.ledger
    assert begun.plan is not None
    older = replace(begun, version=begun.version + 1, plan=replace(begun.plan, writer=0))
    name = ledger_name(OUTPUT, 0)
    lake.store.inner.swap(name, encode_ledger(older), lake.store.inner.get(name).etag)
    lake.worker().work(AT_ONCE)
    assert [file.plan for file in lake.ledger.files] == [2] and lake.problems() == []


def test_old_files_move_to_pages(lake: Laked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tiering.lake.ledger.FILES_MAX", 4)
    monkeypatch.setattr("appliance.tiering.lake.ledger.PAGE_FILES", 2)
    for first in range(9):
        lake.put([{"n": first}])
    lake.worker().work(replace(AT_ONCE, max_bytes=1))
    assert (len(lake.ledger.pages), len(lake.ledger.files), lake.ledger.file_count) == (3, 3, 9)
    assert [row["n"] for row in lake.rows()] == list(range(9)) and lake.problems() == []


def test_damage_is_found(lake: Laked) -> None:
    lake.put([{"n": 0}])
    lake.worker().work(AT_ONCE)
    name = OUTPUT.folder + lake.ledger.files[0].name
    data = bytearray(lake.store.inner.get(name).data)
    data[50] ^= 1
    lake.store.inner.delete(name)
    assert [problem.kind for problem in lake.problems()] == ["missing"]
    lake.store.inner.create(name, bytes(data))
    assert [problem.kind for problem in lake.problems()] == ["damaged"]


def test_a_backfill_is_another_output(lake: Laked) -> None:
    lake.put([{"n": 0}])
    lake.worker().work(AT_ONCE)
    output = begin_output(lake.store, TOPIC_ID)
    assert output.generation == 1 and current_output(lake.store, TOPIC_ID).output == output
    with pytest.raises(ValueError, match="counts"):
        drop_output(lake.store, output)
    assert drop_output(lake.store, OUTPUT) == 2 and not list(lake.store.list(OUTPUT.folder))
