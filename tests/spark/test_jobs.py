"""The jobs in true Spark, against records whose counts are known."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import NewRecord, build_batch
from spark.jobs import latest_by_key, offline_load, windowed_counts
from spark.jobs.common import read_batch, read_stream
from spark.jobs.load_plan import LoadFolder, LoadRange, tasks_of
from spark.options import parse_options
from spark.plan import DataLoss
from tests.support.broker import running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

MINUTE_MS = 60_000
START_MS = 28_000_000 * MINUTE_MS


@dataclass
class Cluster:
    servers: str
    client: Client

    def topic(self, name: str, partitions: int = 2) -> None:
        self.client.create_topics([NewTopic(name, partitions, configs={"retention.ms": "-1"})])

    def write(self, topic: str, partition: int, records: list[NewRecord]) -> None:
        self.client.produce(TopicPartition(topic, partition), build_batch(records))

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, **more}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("jobs")
    with running_cluster(folder, brokers=1) as servers, Client(servers.bootstrap_servers) as client:
        yield Cluster(servers.bootstrap_servers, client)


def numbers(start: int, end: int) -> list[NewRecord]:
    return [(START_MS + n, b"k%d" % n, b"%d" % n, []) for n in range(start, end)]


def loaded(out: Path) -> list[int]:
    files = [path for path in out.rglob("*.parquet") if not path.name.startswith("_")]
    return sorted(int(value) for path in files for value in parquet.read_table(path)["value"].to_pylist())


def test_a_task_loads_a_node_a_topic_a_partition_or_a_range() -> None:
    made = [
        LoadRange(topic, str(uuid.UUID(int=1)), partition, start, start + 10, partition % 2)
        for topic in ("a", "b")
        for partition in range(3)
        for start in (0, 10)
    ]
    counts = {unit: len(tasks_of(made, unit)) for unit in offline_load.UNITS}
    assert counts == {"node": 2, "topic": 2, "partition": 6, "range": 12}
    for unit in offline_load.UNITS:
        assert sorted(each.file for task in tasks_of(made, unit) for each in task) == sorted(e.file for e in made)


@pytest.mark.parametrize("unit", ["node", "partition"])
def test_a_load_goes_on_from_where_the_last_one_ended(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, unit: str
) -> None:
    topic = f"load-{unit}"
    cluster.topic(topic)
    options = parse_options(cluster.options(topic, maxRecordsPerPartition="40"))
    for partition in (0, 1):
        cluster.write(topic, partition, numbers(partition * 100, partition * 100 + 100))
    dry = offline_load.offline_load(spark, options, str(tmp_path), unit, dry_run=True)
    assert (dry["offsets"], loaded(tmp_path)) == (200, [])
    first = offline_load.offline_load(spark, options, str(tmp_path), unit)
    tasks = {"node": 1, "partition": 2}[unit]
    assert (first["records"], first["tasks"], first["plan"]) == (200, tasks, 0)
    assert offline_load.offline_load(spark, options, str(tmp_path), unit)["offsets"] == 0, "there is nothing new"
    cluster.write(topic, 0, numbers(200, 230))
    assert offline_load.offline_load(spark, options, str(tmp_path), unit)["records"] == 30
    assert loaded(tmp_path) == list(range(230))


def test_a_load_that_died_is_finished_with_the_edges_it_had(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    cluster.topic("died", 1)
    cluster.write("died", 0, numbers(0, 100))
    options = parse_options(cluster.options("died", maxRecordsPerPartition="30"))
    plan = offline_load.make_plan(options, None)
    LoadFolder.of(str(tmp_path)).open_plan(plan)
    assert offline_load.load_range(options, str(tmp_path), plan.ranges[1]) == 25
    cluster.write("died", 0, numbers(100, 120))
    other = parse_options(cluster.options("died", maxRecordsPerPartition="7"))
    facts = offline_load.offline_load(spark, other, str(tmp_path))
    assert (facts["resumed"], facts["files_before"], facts["records"]) == (True, 1, 75)
    assert offline_load.offline_load(spark, other, str(tmp_path))["records"] == 20
    assert loaded(tmp_path) == list(range(120))


def test_a_gap_between_two_runs_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    cluster.topic("gap", 1)
    cluster.write("gap", 0, numbers(0, 10))
    options = parse_options(cluster.options("gap"))
    plan = offline_load.make_plan(options, None)
    plan.ends["gap"][0] = 11
    with pytest.raises(DataLoss):
        offline_load.make_plan(options, plan)


def test_the_latest_value_of_each_key_is_the_table(cluster: Cluster, spark: SparkSession) -> None:
    cluster.topic("planes")
    at = START_MS
    cluster.write("planes", 0, [(at, b"a", b"1", []), (at + 1, b"b", b"1", []), (at + 2, b"a", b"2", [])])
    # Times may go back within a partition, and offsets decide there.
    cluster.write("planes", 0, [(at + 9, b"c", b"old", []), (at + 3, b"c", b"new", []), (at + 4, None, b"x", [])])
    cluster.write("planes", 1, [(at, b"d", b"1", []), (at + 5, b"d", None, []), (at, b"e", None, [])])
    cluster.write("planes", 1, [(at + 6, b"e", b"back", [])])
    table = latest_by_key.latest_by_key(read_batch(spark, cluster.options("planes")))
    found = {bytes(row["key"]): bytes(row["value"]) for row in table.collect()}
    assert found == {b"a": b"2", b"b": b"1", b"c": b"new", b"e": b"back"}


@pytest.mark.soak  # state that Python keeps costs seconds for each micro-batch
def test_a_stream_keeps_what_is_latest_and_forgets_what_is_deleted(
    cluster: Cluster,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.topic("wings", 1)
    cluster.topic("latest", 1)
    monkeypatch.setattr("spark.jobs.common.spark_session", lambda *_, **__: _Kept(spark))
    given = ["--bootstrap-servers", cluster.servers, "--topics", "wings", "--to", "latest"]
    at = START_MS
    for batch in (
        [(at, b"a", b"1", []), (at + 1, b"b", b"1", []), (at + 2, b"a", b"2", [])],
        [(at, b"b", None, []), (at + 3, b"c", b"1", [])],
    ):
        cluster.write("wings", 0, batch)
        assert latest_by_key.main([*given, "--checkpoint", str(tmp_path / "c")]) == 0
    capsys.readouterr()
    rows = read_batch(spark, cluster.options("latest", isolationLevel="read_committed")).orderBy("offset").collect()
    found = [(bytes(row["key"]), row["value"] and bytes(row["value"])) for row in rows]
    assert sorted(found[:2]) == [(b"a", b"2"), (b"b", b"1")]
    assert sorted(found[2:4]) == [(b"b", None), (b"c", b"1")]


def test_windows_count_late_records_up_to_the_limit(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    cluster.topic("clicks", 1)

    def run() -> None:
        frame = windowed_counts.windowed_counts(
            read_stream(spark, cluster.options("clicks")), "10 minutes", "20 minutes"
        )
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    def at(minute: int, value: bytes = b"12345") -> NewRecord:
        return (START_MS + minute * MINUTE_MS, None, value, [])

    cluster.write("clicks", 0, [at(0), at(9), at(11), at(19), at(31)])
    run()
    cluster.write("clicks", 0, [at(12, b"1"), at(1), at(60)])  # the first is late, the second too late
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("start").collect()
    assert [(row["records"], row["bytes"]) for row in rows] == [(2, 10), (3, 11), (1, 5)]


def test_jobs_are_run_by_name_and_say_what_they_did(
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster.topic("named", 1)
    cluster.write("named", 0, numbers(0, 10))
    monkeypatch.setattr("spark.jobs.common.spark_session", lambda *_, **__: _Kept(spark))
    given = ["--bootstrap-servers", cluster.servers, "--topics", "named", "--out", str(tmp_path)]
    assert offline_load.main([*given, "--unit", "topic", "--option", "failOnDataLoss=true"]) == 0
    facts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (facts["job"], facts["records"]) == ("offline_load", 10)
    assert latest_by_key.main([*given[:-1], str(tmp_path / "table")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["keys"] == 10


class _Kept:
    """The module's session, which a job must not stop."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    def stop(self) -> None:
        """Left to the fixture."""
