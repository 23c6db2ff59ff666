"""The demo's flights through the jobs, over both tiers, against the input files."""

from __future__ import annotations

import bisect
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from appliance.base.ids import TopicPartition
from appliance.records.builder import NewRecord
from spark.jobs import join_table, latest_by_key, pipeline, sql
from tests.support.replicated import until
from tests.support.spark_jobs import JobRunner, JobsCluster, jobs_cluster
from tools.demo.tables import Row, as_json, hour_ms, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

PARTITIONS = 3
EARLIEST_LOCAL = -4
HISTORY = {"segment.bytes": str(1 << 20), "local.retention.bytes": "1"}


@dataclass
class Flights:
    """A part of the year, or all of it, as the files have it and in topics of the same names."""

    cluster: JobsCluster
    flights: list[Row]
    weather: list[Row]
    planes: list[Row]


def months(table: str, last: int) -> list[Row]:
    # Both tables begin with January.
    rows = rows_of(table)
    if last == 1:
        rows = itertools.takewhile(lambda row: row["month"] == 1 or table == "weather", rows)
    return [row for row in rows if int(str(row["month"])) <= last]


def bring_in(cluster: JobsCluster, last_month: int) -> Flights:
    found = Flights(cluster, months("flights", last_month), months("weather", last_month), list(rows_of("planes")))
    for name in ("flights", "weather", "flights-by-origin"):
        cluster.topic(name, PARTITIONS, **HISTORY)
    cluster.topic("planes", 1)
    cluster.write_by_key("flights", PARTITIONS, [record(row, row["tailnum"] or "unknown") for row in found.flights])
    cluster.write_by_key("weather", PARTITIONS, [record(row, row["origin"]) for row in found.weather])
    # Planes come twice: at first with other seats, some of them to be deleted.
    at_first = [(0, key(row), as_json({**row, "seats": -1}).encode(), []) for row in found.planes]
    later = [(1, key(row), as_json(row).encode(), []) for row in found.planes]
    gone = [(2, key(row), None, []) for row in found.planes[::100]]
    cluster.write("planes", 0, [*at_first, *later, *gone])
    tps = dict.fromkeys((TopicPartition("flights", number) for number in range(PARTITIONS)), EARLIEST_LOCAL)
    until(lambda: all(r.offset > 0 for r in cluster.client.list_offsets(tps).values()), "flights to leave the disk")
    return found


def record(row: Row, name: object) -> NewRecord:
    return (hour_ms(row), str(name).encode(), as_json(row).encode(), [])


def key(row: Row) -> bytes:
    return str(row["tailnum"]).encode()


@pytest.fixture(scope="module", params=[1, pytest.param(12, marks=pytest.mark.soak)], ids=["january", "the year"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flights]:
    folder = tmp_path_factory.mktemp("flights")
    with jobs_cluster(folder, **{"tiering.task.interval.ms": "100"}) as cluster:
        yield bring_in(cluster, request.param)


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> JobRunner:
    return JobRunner(spark, monkeypatch, capsys)


def test_a_report_by_month_and_carrier_is_that_of_the_input(data: Flights, run: JobRunner) -> None:
    query = (
        "select month, carrier, count(dep_time) as departures, sum(if(dep_time is null, null, dep_delay)) as delay,"
        " count(distinct _tier) as tiers from flights group by month, carrier"
    )
    given = data.cluster.arguments("flights", "--option", "includeTier=true", "--query", query)
    run(sql.main, given)
    found = {(row["month"], row["carrier"]): row for row in map(json.loads, run.lines)}
    delays: dict[tuple[object, object], list[float]] = defaultdict(list)
    for row in data.flights:
        delays[row["month"], row["carrier"]] += [] if row["dep_time"] is None else [float(str(row["dep_delay"]))]
    assert {group: (row["departures"], row["delay"]) for group, row in found.items()} == {
        group: (len(values), sum(values)) for group, values in delays.items()
    }
    assert max(row["tiers"] for row in found.values()) == 2, "both tiers were read"


def test_delays_meet_the_weather_of_their_hour(data: Flights, run: JobRunner, tmp_path: Path) -> None:
    re_key = data.cluster.arguments("flights", "--to", "flights-by-origin", "--schema", "origin string")
    facts = run(pipeline.main, [*re_key, "--key", "origin", "--checkpoint", str(tmp_path / "p")])
    assert facts["rows"] == len(data.flights)
    given = data.cluster.arguments("flights-by-origin", "--table", "weather", "--as-of", "--how", "left_outer")
    given += ["--out", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "j")]
    assert run(join_table.main, [*given, "--option", "isolationLevel=read_committed"])["rows"] == len(data.flights)
    files = [path for path in (tmp_path / "out").rglob("*.parquet") if not path.name.startswith("_")]
    joined = parquet.read_table(files, columns=["value", "table_value"])
    found = Counter(
        (value, weather) for value, weather in zip(*(column.to_pylist() for column in joined.columns), strict=True)
    )
    hours: dict[object, list[tuple[int, bytes]]] = defaultdict(list)
    for row in data.weather:
        hours[row["origin"]].append((hour_ms(row), as_json(row).encode()))
    for rows in hours.values():
        rows.sort(key=lambda each: each[0])  # stable: of one hour the later row counts

    def weather_of(row: Row) -> bytes | None:
        rows = hours[row["origin"]]
        at = bisect.bisect_right(rows, hour_ms(row), key=lambda each: each[0])
        return rows[at - 1][1] if at else None

    assert found == Counter((as_json(row).encode(), weather_of(row)) for row in data.flights)


def test_planes_are_a_table_by_tail_number(data: Flights, run: JobRunner, tmp_path: Path) -> None:
    facts = run(latest_by_key.main, data.cluster.arguments("planes", "--out", str(tmp_path)))
    table = parquet.read_table(list(tmp_path.glob("*.parquet")))
    found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    expected = {key(row): as_json(row).encode() for row in data.planes}
    for row in data.planes[::100]:
        del expected[key(row)]
    assert found == expected and facts["keys"] == table.num_rows == len(expected)
