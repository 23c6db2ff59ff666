"""`format("appliance")` in true Spark over a real broker with a real tier."""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

import pyspark_appliance
from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.builder import build_batch
from spark.options import SourceOptions
from spark.planning import plan_batch
from spark.reading import read_split
from tests.support.broker import running_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240), pytest.mark.xdist_group("spark")]

RECORDS = 6_000
PARTITIONS = 2
HOUR = 1_357_034_400_000


@dataclass
class Table:
    """Two partitions of 6,000 records each; most lie in the object store only, the newest on the broker only."""

    servers: str
    object_store: str
    client: Client
    spark: SparkSession

    def read(self, *, schema: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("appliance").option("kafka.bootstrap.servers", self.servers)
        if not {"subscribe", "assign", "subscribePattern"} & options.keys():
            options["subscribe"] = "flights"
        for name, value in options.items():
            reader = reader.option(name, value)
        return (reader.schema(schema) if schema else reader).load()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Table]:
    folder = tmp_path_factory.mktemp("spark")
    with (
        running_cluster(folder, brokers=2, properties={"tiering.task.interval.ms": "100"}) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        configs = {"segment.bytes": str(1 << 20), "local.retention.bytes": "1", "retention.ms": "-1"}
        client.create_topics([NewTopic("flights", PARTITIONS, configs=configs), NewTopic("empty", 1)])
        fill(client, "flights", 0, RECORDS)
        wait_until_old_segments_are_gone(client, "flights")
        yield Table(cluster.bootstrap_servers, cluster.object_store, client, spark)


def value_of(number: int) -> bytes:
    """Incompressible, so that segments fill whatever the codec."""
    return b"%d " % number + random.Random(number).randbytes(700)


def fill(client: Client, topic: str, start: int, end: int) -> None:
    for partition in range(PARTITIONS):
        for first in range(start, end, 100):
            rows = [
                (
                    HOUR + n,
                    None if n % 7 == 0 else b"k%d" % n,
                    value_of(n),
                    [("h", b"%d" % n)] if n % 2 else [],
                )
                for n in range(first, first + 100)
            ]
            client.produce(TopicPartition(topic, partition), build_batch(rows, codec=first // 100 % 5))


def wait_until_old_segments_are_gone(client: Client, topic: str) -> None:
    tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    deadline_s = time.monotonic() + 30
    while any(result.offset < 1_000 for result in client.list_offsets(dict.fromkeys(tps, -4)).values()):
        assert time.monotonic() < deadline_s, "no segment left the broker's disk"
        time.sleep(0.1)


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(rows) for partition, rows in found.items()}


def test_a_frame_keeps_the_ends_of_its_first_use(table: Table) -> None:
    table.client.create_topics([NewTopic("grows", 1, configs={"retention.ms": "-1"})])
    batch = build_batch([(HOUR, None, b"one", [])])
    table.client.produce(TopicPartition("grows", 0), batch)
    frame = table.read(subscribe="grows")
    assert frame.count() == 1
    table.client.produce(TopicPartition("grows", 0), batch)
    assert [row["offset"] for row in frame.collect()] == [0]
    assert table.read(subscribe="grows").count() == 2


def test_hot_and_tiered_records_are_one_table_and_each_is_there_once(table: Table) -> None:
    frame = table.read(includeTier="true").cache()
    assert offsets(frame) == {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}
    tiers = {row["tier"]: row["count"] for row in frame.groupBy("tier").count().collect()}
    assert set(tiers) == {"hot", "tiered"} and sum(tiers.values()) == RECORDS * PARTITIONS


def test_columns_and_values_are_those_of_sparks_kafka_source(table: Table) -> None:
    frame = table.read(
        includeHeaders="true", startingOffsets='{"flights":{"0":13,"1":0}}', endingOffsets='{"flights":{"0":15,"1":0}}'
    )
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("offset").selectExpr("*", "cast(timestamp as string) as text").collect()
    assert [(bytes(row["key"]) if row["key"] is not None else None, row["offset"]) for row in rows] == [
        (b"k13", 13),
        (None, 14),
    ]
    assert bytes(rows[0]["value"]) == value_of(13)
    assert (rows[0]["topic"], rows[0]["partition"], rows[0]["timestampType"]) == ("flights", 0, 0)
    assert datetime.datetime.fromisoformat(rows[0]["text"]) == datetime.datetime(2013, 1, 1, 10, 0, 0, 13_000)
    assert [(header["key"], bytes(header["value"])) for header in rows[0]["headers"]] == [("h", b"13")]
    assert rows[1]["headers"] is None


@pytest.mark.parametrize(("start", "end"), [(0, 1), (555, 1_777), (999, 5_950), (5_998, 6_000), (100, 100)])
def test_any_range_is_cut_exactly(table: Table, start: int, end: int) -> None:
    frame = table.read(
        startingOffsets=f'{{"flights":{{"0":{start},"1":{start}}}}}',
        endingOffsets=f'{{"flights":{{"0":{end},"1":{end}}}}}',
    )
    expected = {partition: list(range(start, end)) for partition in range(PARTITIONS)} if start < end else {}
    assert offsets(frame) == expected


def test_splits_are_as_small_as_the_user_wishes(table: Table) -> None:
    frame = table.read(maxRecordsPerPartition="500")
    assert frame.rdd.getNumPartitions() >= 24
    assert offsets(frame) == {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}


def test_a_schema_picks_columns(table: Table) -> None:
    frame = table.read(schema="offset bigint, partition int")
    assert frame.columns == ["offset", "partition"]
    assert frame.count() == RECORDS * PARTITIONS


def test_columns_that_are_never_null_say_so_unless_the_schema_of_the_user_says_otherwise(table: Table) -> None:
    frame = table.read(includeHeaders="true", includeTier="true")
    assert [field.name for field in frame.schema.fields if field.nullable] == ["key", "value", "headers"]
    given = "offset bigint not null, key binary, topic string"
    frame = table.read(schema=given, endingOffsets='{"flights":{"0":15,"1":0}}')
    assert [field.nullable for field in frame.schema.fields] == [False, True, True]
    rows = frame.where("topic is not null").orderBy("offset").collect()
    assert [(row["offset"], row["topic"]) for row in rows] == [(offset, "flights") for offset in range(15)]
    assert sum(row["key"] is None for row in rows) > 0
    with pytest.raises(Exception, match="column key may be null"):
        table.read(schema="key binary not null").count()


def test_partitions_topics_and_patterns_can_be_chosen(table: Table) -> None:
    assert offsets(table.read(assign='{"flights":[1]}')) == {1: list(range(RECORDS))}
    assert table.read(subscribePattern="fli.*").count() == RECORDS * PARTITIONS
    assert table.read(subscribe="flights,empty").count() == RECORDS * PARTITIONS
    assert table.read(subscribe="empty").count() == 0


def test_each_tier_can_be_read_alone(table: Table) -> None:
    hot = table.read(
        tier="hot", startingOffsets='{"flights":{"0":0,"1":0}}', endingOffsets='{"flights":{"0":300,"1":0}}'
    )
    assert offsets(hot) == {0: list(range(300))}, "the broker serves old records too"
    with pytest.raises(Exception, match="the tier holds"):
        table.read(tier="tiered").count()


def test_offsets_that_are_not_there_are_an_error_unless_the_user_says_otherwise(table: Table) -> None:
    ending = {"endingOffsets": '{"flights":{"0":6001,"1":10}}'}
    with pytest.raises(Exception, match="failOnDataLoss"):
        table.read(**ending).count()
    assert table.read(**ending, failOnDataLoss="false").count() == RECORDS + 10


def test_mistakes_are_named(table: Table) -> None:
    with pytest.raises(Exception, match="startingoffset is not known"):
        table.read(startingOffset="earliest").count()
    with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PARTITION"):
        table.read(subscribe="nowhere").count()
    with pytest.raises(Exception, match="column colour is not known"):
        table.read(schema="colour string").count()


def test_spark_finds_the_format_by_itself(table: Table) -> None:
    assert issubclass(pyspark_appliance.DefaultSource, DataSource)
    assert pyspark_appliance.DefaultSource.name() == "appliance"


def test_cold_records_are_read_without_the_broker(table: Table) -> None:
    options = SourceOptions(table.servers, subscribe=("flights",))
    tiered = [split for split in plan_batch(options).splits if split.tier == "tiered"]
    split = tiered[0]
    nobody = SourceOptions("127.0.0.1:1", subscribe=("flights",), object_store=table.object_store)
    rows: list[Any] = [
        offset for rows in read_split(nobody, ("offset",), split) for offset in rows["offset"].to_pylist()
    ]
    assert rows == list(range(split.start, split.end))


def test_what_is_written_after_the_plan_is_not_read(table: Table) -> None:
    table.client.create_topics([NewTopic("late", PARTITIONS, configs={"retention.ms": "-1"})])
    fill(table.client, "late", 0, 300)
    options = SourceOptions(table.servers, subscribe=("late",))
    plan = plan_batch(options)
    fill(table.client, "late", 300, 600)
    rows = [rows.num_rows for split in plan.splits for rows in read_split(options, ("offset",), split)]
    assert sum(rows) == 300 * PARTITIONS
