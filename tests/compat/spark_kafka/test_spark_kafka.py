"""Spark's own Kafka source and sink, unmodified: PySpark in an environment of its own, fetched on first use.

program.py beside this file does what is asked here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.compat import CODECS, Sample, Server, produce, read_topic
from tests.support.programs import Scenarios, needs_a_build

pytestmark = [pytest.mark.spark, pytest.mark.compat, needs_a_build]

TIME = 1_700_000_000_000
COUNT = 100


class SparkScenarios(Scenarios):
    """Each is told which jars it needs."""

    def __init__(self, command: list[str], bootstrap_servers: str, jars: list[str]) -> None:
        super().__init__(command, bootstrap_servers)
        self._jars = jars

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        return super().__call__(name, jars=self._jars, **arguments)


@pytest.fixture(scope="module")
def spark_kafka(server: Server) -> Scenarios:
    from tests.benchmarks.spark_peer import NotInstalled, kafka_source_jars, kafka_source_python

    try:
        jars, python = [str(jar) for jar in kafka_source_jars()], str(kafka_source_python())
    except NotInstalled as error:
        pytest.skip(str(error))
    return SparkScenarios([python, str(Path(__file__).with_name("program.py"))], server.bootstrap_servers, jars)


def filled(server: Server) -> str:
    """Two partitions, each with COUNT records in each codec."""
    topic = server.new_topic(2, retention_ms="-1")
    for partition in range(2):
        for turn, codec in enumerate(CODECS):
            share = COUNT // len(CODECS)
            numbers = range(turn * share, (turn + 1) * share)
            records = [Sample(b"k%d" % number, b"v%d" % number, [("h", b"1")], TIME + number) for number in numbers]
            produce(server, topic, records, partition, compression_type=codec)
    return topic


def row(partition: int, number: int) -> list[Any]:
    return [partition, number, f"k{number}", f"v{number}", [["h", "1"]], TIME + number]


def test_a_topic_is_read_whole_and_in_part(server: Server, spark_kafka: Scenarios) -> None:
    topic = filled(server)
    between = {"startingOffsets": {topic: {"0": 10, "1": -2}}, "endingOffsets": {topic: {"0": 20, "1": -1}}}
    asked = [
        {"subscribe": topic},
        {"subscribe": topic, "minPartitions": "7"},
        {"assign": json.dumps({topic: [1]})},
        {"subscribe": topic, **{name: json.dumps(value) for name, value in between.items()}},
        {"subscribe": topic, "startingTimestamp": str(TIME + 90)},
        {"subscribe": topic, "endingOffsetsByTimestamp": json.dumps({topic: {"0": TIME + 5, "1": TIME + 7}})},
    ]
    whole, split, one, part, late, early = spark_kafka("batch", asked=asked)["read"]
    assert whole == split == [row(partition, number) for partition in range(2) for number in range(COUNT)]
    assert one == [row(1, number) for number in range(COUNT)]
    assert part == [row(0, number) for number in range(10, 20)] + [row(1, number) for number in range(COUNT)]
    assert late == [row(partition, number) for partition in range(2) for number in range(90, COUNT)]
    assert early == [row(0, number) for number in range(5)] + [row(1, number) for number in range(7)]


def test_aborted_transactions_are_not_read(server: Server, spark_kafka: Scenarios, group_id: str) -> None:
    from confluent_kafka import Producer

    topic = server.new_topic(1)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": group_id})
    producer.init_transactions(30)
    for end, value in [(producer.commit_transaction, b"one"), (producer.abort_transaction, b"two")] * 2:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)
    asked = [
        {"subscribe": topic, "kafka.isolation.level": "read_committed"},
        {"subscribe": topic, "kafka.isolation.level": "read_uncommitted"},
    ]
    committed, all_of_it = spark_kafka("batch", asked=asked)["read"]
    assert [found[3] for found in committed] == ["one", "one"]
    assert [found[3] for found in all_of_it] == ["one", "two", "one", "two"]


def test_a_stream_goes_on_at_its_checkpoint(server: Server, spark_kafka: Scenarios, tmp_path: Path) -> None:
    topic = filled(server)
    options = {"subscribePattern": f"{topic[:-3]}...", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
    added = [[topic, "new", f"{number}", [["a", "b"]], number % 2] for number in range(10)]
    first, second = spark_kafka("stream", options=options, checkpoint=str(tmp_path / "c"), added=added)["batches"]
    assert len(first) >= 4 and all(len(batch) <= 61 for batch in first)
    assert sorted(found for batch in first for found in batch) == [
        row(partition, number) for partition in range(2) for number in range(COUNT)
    ]
    found = sorted((partition, offset, key, value) for batch in second for partition, offset, key, value, *_ in batch)
    assert found == sorted((number % 2, COUNT + number // 2, "new", f"{number}") for number in range(10))


def test_batches_and_streams_are_written(server: Server, spark_kafka: Scenarios, tmp_path: Path) -> None:
    topic, copy = server.new_topic(3), server.new_topic(3)
    written = [[topic, f"k{number}", f"größe {number}", [["a", "1"], ["a", "2"]], number % 3] for number in range(50)]
    written.append([topic, None, "no key", None, 0])
    written.append([topic, "tombstone", None, None, 1])
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    spark_kafka("write", rows=written, options=options, copy=copy, checkpoint=str(tmp_path / "c"))

    def shown(name: str) -> list[tuple[Any, ...]]:
        read = read_topic(server, name, 3)
        rows = ((each.partition(), each.key(), each.value(), each.headers() or None) for each in read)
        return sorted(rows, key=str)

    def as_bytes(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    wanted = [
        (partition, as_bytes(key), as_bytes(value), [(name, value.encode()) for name, value in headers or []] or None)
        for _, key, value, headers, partition in written
    ]
    assert shown(topic) == shown(copy) == sorted(wanted, key=str)
