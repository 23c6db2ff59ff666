"""Stock clients pass the offsets that a restore leaves out: one batch without records over 2^30 of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPlace
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPlace

from appliance.base.ids import TopicPartition as Place
from appliance.client.client import Client
from tests.support.java_tools import tool
from tests.support.replicated import until
from tests.support.total_loss import cluster_over, lose_disks, tier

TOPIC = "gap"
BEFORE, AFTER = 40, 5
GAP = 1 << 30
CONFIGS = {"segment.bytes": "1048576", "retention.ms": "-1", "local.retention.bytes": "1", "tiering.max.lag.ms": "300"}


def fill(servers: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%06d" % number, partition=0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gap")
    store = folder / "bucket"
    with cluster_over(folder / "first", store, 1, {}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(20)
        fill(cluster.bootstrap_servers, 0, BEFORE)
        with Client(cluster.bootstrap_servers) as client:
            place = Place(TOPIC, 0)
            until(lambda: client.list_offsets({place: -5})[place].offset == BEFORE - 1, "all to be uploaded")
    lose_disks(folder / "first")
    with cluster_over(folder / "second", store, 1, {}) as cluster:
        code, rows = tier("restore", store.as_uri(), "--bootstrap-server", cluster.bootstrap_servers)
        assert (code, rows[0]["end_offset"]) == (0, BEFORE + GAP), rows
        fill(cluster.bootstrap_servers, BEFORE, AFTER)
        yield cluster.bootstrap_servers


EXPECTED = [(n, b"%06d" % n) for n in range(BEFORE)] + [(n + GAP, b"%06d" % n) for n in range(BEFORE, BEFORE + AFTER)]


@pytest.mark.parametrize("start", [0, BEFORE + 7])
def test_librdkafka(servers: str, start: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "error", "log_level": 2})
    consumer.assign([TopicPartition(TOPIC, 0, start)])
    wanted = [row for row in EXPECTED if row[0] >= start]
    found: list[tuple[int, bytes]] = []

    def more() -> bool:
        found.extend(
            (message.offset(), message.value()) for message in consumer.consume(100, 0.3) if not message.error()
        )
        return len(found) >= len(wanted)

    try:
        until(more, "all records")
    finally:
        consumer.close()
    assert found == wanted


@pytest.mark.parametrize("start", [0, BEFORE + 7])
def test_kafka_python(servers: str, start: int) -> None:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none", consumer_timeout_ms=10_000)
    place = KafkaPythonPlace(TOPIC, 0)
    wanted = [row for row in EXPECTED if row[0] >= start]
    try:
        consumer.assign([place])
        consumer.seek(place, start)
        found = [(message.offset, message.value) for message, _ in zip(consumer, wanted, strict=False)]
    finally:
        consumer.close()
    assert found == wanted


@pytest.mark.parametrize("start", [0, BEFORE + 7])
def test_aiokafka(servers: str, start: int) -> None:
    wanted = [row for row in EXPECTED if row[0] >= start]

    async def read() -> list[tuple[int, bytes]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none")
        await consumer.start()
        try:
            place = AioPlace(TOPIC, 0)
            consumer.assign([place])
            consumer.seek(place, start)
            found = []
            while len(found) < len(wanted):
                message = await asyncio.wait_for(consumer.getone(), 20)
                found.append((message.offset, message.value))
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == wanted


@pytest.mark.java
@pytest.mark.parametrize("start", [0, BEFORE + 7])
def test_apache_kafkas_consumer(servers: str, start: int) -> None:
    wanted = [value.decode() for offset, value in EXPECTED if offset >= start]
    arguments = ["--bootstrap-server", servers, "--topic", TOPIC, "--partition", "0", "--offset", str(start)]
    output = tool("consumer.ConsoleConsumer", *arguments, "--max-messages", str(len(wanted)), "--timeout-ms", "20000")
    assert output.split() == wanted
