"""Streams in true Spark: triggers, checkpoints, sinks; over a real broker."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import build_batch
from spark.option_values import OptionError
from spark.options import SourceOptions, parse_options
from spark.planning import plan_batch
from spark.reading import read_split
from spark.sink_options import SinkOptions, parse_sink_options
from spark.sink_task import Row, write_at_least_once, write_exactly_once
from spark.stream import ApplianceStreamReader
from tests.support.broker import running_cluster
from tests.support.replicated import until
from tests.support.tiering_kit import ManualClock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

PARTITIONS = 2


@dataclass
class Cluster:
    servers: str
    client: Client
    spark: SparkSession
    folder: Path
    topics: int = 0

    def topic(self, rows: int = 0) -> str:
        """A new topic of two partitions with values `0` to `rows - 1`."""
        self.topics += 1
        name = f"t{self.topics}"
        self.client.create_topics([NewTopic(name, PARTITIONS, configs={"retention.ms": "-1"})])
        self.fill(name, 0, rows)
        return name

    def fill(self, topic: str, start: int, end: int) -> None:
        for partition in range(PARTITIONS):
            numbers = range(start + partition, end, PARTITIONS)
            for first in range(0, len(numbers), 50):
                records = [(n, b"k%d" % n, b"%d" % n, [("h", b"x")]) for n in numbers[first : first + 50]]
                self.client.produce(TopicPartition(topic, partition), build_batch(records))

    def stream(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("appliance").option("kafka.bootstrap.servers", self.servers)
        for name, value in {"subscribe": topic, "startingOffsets": "earliest", **options}.items():
            reader = reader.option(name, value)
        return reader.load()

    def run(self, frame: DataFrame, checkpoint: str, **options: str) -> StreamingQuery:
        """Run a query until all that is there now is done."""
        writer = frame.writeStream.format("appliance").option("kafka.bootstrap.servers", self.servers)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120), "the query does not end"
        return query

    def rows(self, topic: str, columns: tuple[str, ...], committed: bool = False) -> list[dict[str, Any]]:
        """What the topic has on both tiers."""
        options = SourceOptions(self.servers, subscribe=(topic,), read_committed=committed)
        plan = plan_batch(options)
        options = dataclasses.replace(options, object_store=plan.object_store)
        batches = [rows for split in plan.splits for rows in read_split(options, columns, split)]
        return [row for rows in batches for row in rows.to_pylist()]

    def values(self, topic: str, committed: bool = True) -> list[int]:
        return sorted(int(row["value"]) for row in self.rows(topic, ("value",), committed))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("streams")
    with running_cluster(folder / "brokers", brokers=1) as servers, Client(servers.bootstrap_servers) as client:
        yield Cluster(servers.bootstrap_servers, client, spark, folder)


def test_available_now_reads_what_is_there_in_triggers_of_the_wished_size(cluster: Cluster) -> None:
    source, target = cluster.topic(500), cluster.topic()
    frame = cluster.stream(source, maxOffsetsPerTrigger="200").select("key", "value")
    query = cluster.run(frame, "limited", topic=target)
    batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert batches == [200, 200, 100]
    assert json.loads(query.lastProgress["sources"][0]["endOffset"]) == {source: {"0": 250, "1": 250}}
    assert cluster.values(target) == list(range(500))


def test_a_trigger_waits_for_enough_offsets_or_until_its_time_is_over(cluster: Cluster) -> None:
    topic, clock = cluster.topic(10), ManualClock()
    given = {"kafka.bootstrap.servers": cluster.servers, "subscribe": topic, "startingOffsets": "earliest"}
    given |= {"minOffsetsPerTrigger": "100", "maxOffsetsPerTrigger": "100", "maxTriggerDelay": "1m"}
    reader = ApplianceStreamReader(parse_options(given, streaming=True), ("value",), clock)
    limit, position = reader.getDefaultReadLimit(), reader.initialOffset()

    def trigger() -> int:
        nonlocal position
        before, position = position, reader.latestOffset(position, limit)
        return sum(position[topic].values()) - sum(before[topic].values())

    assert trigger() == 10, "the first one begins at once"
    cluster.fill(topic, 10, 60)
    assert trigger() == 0
    clock.elapsed_ms += 60_000
    assert trigger() == 50, "a minute is over"
    cluster.fill(topic, 60, 190)
    assert [trigger(), trigger()] == [100, 0]
    assert reader.latestOffset(position, ReadAllAvailable()) == {topic: {"0": 95, "1": 95}}, "Trigger.Once takes all"
    reader.prepareForTriggerAvailableNow()
    assert [trigger(), trigger()] == [30, 0], "Trigger.AvailableNow waits for nothing"


@pytest.mark.soak  # the test above, with the engine between
def test_a_running_query_waits_for_enough_offsets(cluster: Cluster) -> None:
    topic, interval = cluster.topic(10), "spark.sql.streaming.noDataProgressEventInterval"
    cluster.spark.conf.set(interval, "100")
    writer = cluster.stream(topic, minOffsetsPerTrigger="100", maxTriggerDelay="1h").writeStream.format("noop")
    query = writer.trigger(processingTime="300 milliseconds").start()

    def has_seen(offsets: int) -> bool:
        assert query.exception() is None
        ends = [json.loads(each["sources"][0]["latestOffset"] or "{}").get(topic, {}) for each in query.recentProgress]
        return any(sum(end.values()) == offsets for end in ends)

    def batches() -> list[int]:
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    try:
        until(lambda: batches() == [10], "the first batch", 90)
        cluster.fill(topic, 10, 60)
        until(lambda: has_seen(60), "a look at 50 offsets", 90)
        cluster.fill(topic, 60, 120)
        until(lambda: sum(batches()) == 120, "the second batch", 90)
        assert batches() == [10, 110]
    finally:
        query.stop()
        cluster.spark.conf.unset(interval)


def test_a_restarted_query_goes_on_where_it_was(cluster: Cluster) -> None:
    source, target = cluster.topic(100), cluster.topic()
    frame = cluster.stream(source).select("value", "key")
    cluster.run(frame, "restarted", topic=target)
    cluster.fill(source, 100, 150)
    cluster.run(frame, "restarted", topic=target)
    assert cluster.values(target) == list(range(150))


def test_a_replayed_batch_of_an_exactly_once_sink_is_not_written_again(cluster: Cluster) -> None:
    source, target = cluster.topic(200), cluster.topic()
    frame = cluster.stream(source, maxOffsetsPerTrigger="100").select("value")
    options = {"topic": target, "delivery": "exactly_once"}
    cluster.run(frame, "replayed", **options)
    # As if the driver had died after the tasks of the last batch, before Spark noted that it is done.
    last = max((cluster.folder / "replayed" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    for crc in last.parent.glob(f".{last.name}.*"):
        crc.unlink()
    cluster.fill(source, 200, 230)
    cluster.run(frame, "replayed", **options)
    assert cluster.values(target, committed=False) == list(range(230))


def test_a_worker_killed_in_the_middle_of_a_batch_leaves_no_row_twice(cluster: Cluster) -> None:
    source, target = cluster.topic(400), cluster.topic()
    flag = cluster.folder / "killed"

    def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 150)
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch.slice(150)

    frame = cluster.stream(source).select("value").mapInArrow(kill_once, "value binary")
    options = {"topic": target, "delivery": "exactly_once", "kafka.batch.size": "500"}
    cluster.run(frame, "killed-checkpoint", **options)
    assert flag.exists()
    assert cluster.values(target) == list(range(400))


def test_batches_are_written_with_keys_headers_and_their_partitions(cluster: Cluster) -> None:
    source, target = cluster.topic(60), cluster.topic()
    frame = (
        cluster.spark.read.format("appliance")
        .option("kafka.bootstrap.servers", cluster.servers)
        .option("includeHeaders", "true")
        .option("subscribe", source)
        .load()
    )
    writer = frame.selectExpr("key", "value", "headers", "partition", "timestamp", f"'{target}' as topic").write
    writer = writer.format("appliance").option("kafka.bootstrap.servers", cluster.servers)
    writer.option("keepTimestamps", "true").option("delivery", "at_least_once").mode("append").save()
    columns = ("key", "value", "partition", "timestamp", "headers")
    assert rows_of_topic(cluster, target, columns) == rows_of_topic(cluster, source, columns)


def rows_of_topic(cluster: Cluster, topic: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    return sorted(cluster.rows(topic, columns), key=lambda row: bytes(row["key"]))


def rows(start: int, end: int, topic: str) -> Iterator[Row]:
    return ((topic, None, (n, b"%d" % n, b"%d" % n, ())) for n in range(start, end))


def test_an_attempt_after_a_commit_has_nothing_to_do(cluster: Cluster) -> None:
    target = cluster.topic()
    options = SinkOptions(cluster.servers, topic=target, delivery="exactly_once", batch_bytes=400)
    assert write_exactly_once(options, rows(0, 50, target), "once", 0) == 50
    assert write_exactly_once(options, rows(0, 50, target), "once", 0) is None
    assert write_exactly_once(options, rows(50, 80, target), "once", 1) == 30
    assert write_exactly_once(options, rows(0, 50, target), "once", 0) is None, "a batch from before is done, too"
    assert cluster.values(target, committed=False) == list(range(80))


def test_an_attempt_that_fails_is_not_visible_and_a_later_one_fences_it(cluster: Cluster) -> None:
    target = cluster.topic()
    options = SinkOptions(cluster.servers, topic=target, delivery="exactly_once", batch_bytes=100)

    def overtaken() -> Iterator[Row]:
        yield from rows(0, 20, target)
        assert write_exactly_once(options, rows(0, 40, target), "overtaken", 0) == 40
        yield from rows(20, 40, target)

    with pytest.raises(Exception, match=r"FENCED|INVALID_PRODUCER_EPOCH"):
        write_exactly_once(options, overtaken(), "overtaken", 0)
    assert cluster.values(target) == list(range(40))
    assert len(cluster.values(target, committed=False)) > 40


def test_at_least_once_sends_rows_without_keys_to_all_partitions(cluster: Cluster) -> None:
    target = cluster.topic()
    options = SinkOptions(cluster.servers, topic=target, batch_bytes=200)
    keyless = ((target, None, (n, None, b"%d" % n, ())) for n in range(100))
    assert write_at_least_once(options, keyless) == 100
    assert {row["partition"] for row in cluster.rows(target, ("partition",))} == {0, 1}
    assert cluster.values(target) == list(range(100))


def test_what_is_wrong_with_a_sink_is_named(cluster: Cluster) -> None:
    servers = {"kafka.bootstrap.servers": cluster.servers}
    for given, named in (
        ({}, "kafka.bootstrap.servers is missing"),
        ({**servers, "delivery": "maybe"}, "at_least_once or exactly_once"),
        ({**servers, "delivery": "exactly_once"}, "needs the option topic"),
        ({**servers, "kafka.compression.type": "rar"}, "none, gzip"),
        ({**servers, "topik": "x"}, "topik is not known"),
    ):
        with pytest.raises(OptionError, match=named):
            parse_sink_options(given)
    frame = cluster.spark.range(3)
    with pytest.raises(Exception, match="a column value"):
        frame.write.format("appliance").options(**servers, topic="t").mode("append").save()
