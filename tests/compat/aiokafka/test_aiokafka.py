"""aiokafka: its own codecs, partitioner, group and administration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.support.compat import (
    CODECS,
    KEYS,
    PATIENCE_S,
    Sample,
    Server,
    produce,
    read_topic,
    sample_of,
    samples,
    wait_until,
)

pytestmark = pytest.mark.xdist_group("compat")

# This client refuses a record without key and value.
SAMPLES = [sample for sample in samples() if (sample.key, sample.value) != (None, None)]


def run(work: Coroutine[Any, Any, None]) -> None:
    async def within_time() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(within_time())


@asynccontextmanager
async def producer_of(server: Server, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_of(server: Server, *topics: str, **options: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=server.bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        **options,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def admin_of(server: Server) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def send_all(producer: AIOKafkaProducer, topic: str, records: list[Sample]) -> list[int]:
    """To partition 0, as many in flight as the client likes; their offsets."""
    futures = [
        await producer.send(topic, each.value, each.key, partition=0, timestamp_ms=each.timestamp, headers=each.headers)
        for each in records
    ]
    return [(await future).offset for future in futures]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_go_from_this_client_to_another(server: Server, codec: str, idempotent: bool) -> None:
    topic = server.new_topic(retention_ms="-1")

    async def send() -> None:
        compression = None if codec == "none" else codec
        async with producer_of(server, compression_type=compression, enable_idempotence=idempotent) as producer:
            assert await send_all(producer, topic, SAMPLES) == list(range(len(SAMPLES)))

    run(send())
    assert [sample_of(message) for message in read_topic(server, topic)] == SAMPLES


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_to_this_client_from_another(server: Server, codec: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, samples(), compression_type=codec)

    async def read() -> None:
        async with consumer_of(server) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            records = [await consumer.getone() for _ in samples()]
            assert [each.offset for each in records] == list(range(len(samples())))
            found = [Sample(each.key, each.value, list(each.headers), each.timestamp) for each in records]
            assert found == samples()

    run(read())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(server: Server, acks: Any) -> None:
    topic = server.new_topic(retention_ms="-1")

    async def send() -> None:
        async with producer_of(server, acks=acks) as producer:
            for each in SAMPLES:
                await producer.send_and_wait(topic, each.value, each.key, partition=0)

    run(send())
    wait_until(lambda: len(read_topic(server, topic)) == len(SAMPLES))


def test_keys_go_to_the_same_partitions_as_elsewhere(server: Server) -> None:
    partitions = 7
    topic, other = server.new_topic(partitions), server.new_topic(partitions)

    async def send() -> None:
        async with producer_of(server) as producer:
            for key in KEYS:
                await producer.send_and_wait(topic, b"", key)

    run(send())
    ours = {message.key(): message.partition() for message in read_topic(server, topic, partitions)}
    produce(server, other, [Sample(key, b"", [], 0) for key in KEYS], partition=None, partitioner="murmur2_random")
    assert ours == {message.key(): message.partition() for message in read_topic(server, other, partitions)}
    assert len(set(ours.values())) == partitions


def test_two_members_read_every_record_once_and_a_third_goes_on(server: Server, group_id: str) -> None:
    topic = server.new_topic(4)
    read: list[tuple[int, int]] = []

    async def read_for_ever(consumer: AIOKafkaConsumer) -> None:
        async for record in consumer:
            read.append((record.partition, record.offset))

    def send(first: int) -> None:
        for partition in range(4):
            produce(server, topic, [b"%d" % number for number in range(first, first + 10)], partition=partition)

    async def members() -> None:
        async with consumer_of(server, topic, group_id=group_id) as first:
            reading = [asyncio.create_task(read_for_ever(first))]
            await until(lambda: len(read) >= 40)
            await first.commit()
            async with consumer_of(server, topic, group_id=group_id) as second:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
                reading.append(asyncio.create_task(read_for_ever(second)))
                await asyncio.to_thread(send, 10)
                await until(lambda: len(read) >= 80)
                await first.commit()
                await second.commit()
                for task in reading:
                    task.cancel()

    async def third() -> None:
        async with consumer_of(server, topic, group_id=group_id) as consumer:
            record = await consumer.getone()
            read.append((record.partition, record.offset))

    send(0)
    run(members())
    produce(server, topic, [b"20"])
    run(third())
    assert len(read) == len(set(read)) == 81


def test_offsets_are_committed_with_a_note_and_found_by_time(server: Server, group_id: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, [Sample(None, b"%d" % number, [], 1_600_000_000_000 + number) for number in range(3)])
    part = TopicPartition(topic, 0)

    async def look() -> None:
        async with consumer_of(server, group_id=group_id) as consumer:
            consumer.assign([part])
            assert await consumer.beginning_offsets([part]) == {part: 0}
            assert await consumer.end_offsets([part]) == {part: 3}
            found = (await consumer.offsets_for_times({part: 1_600_000_000_001}))[part]
            assert (found.offset, found.timestamp) == (1, 1_600_000_000_001)
            await consumer.commit({part: (2, "a note")})
            assert await consumer.committed(part) == 2
            await consumer.seek_to_committed()
            assert (await consumer.getone()).value == b"2"

    run(look())


def test_topics_groups_and_configs_are_administered(server: Server, group_id: str) -> None:
    name = f"topic-{group_id}"
    resource = ConfigResource(ConfigResourceType.TOPIC, name)

    async def administer() -> None:
        async with admin_of(server) as admin:
            created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})])
            assert [error[1] for error in created.topic_errors] == [0]
            again = await admin.create_topics([NewTopic(name, 2, 1)])
            assert [error[1] for error in again.topic_errors] == [36], "TOPIC_ALREADY_EXISTS"
            while name not in await admin.list_topics():
                await asyncio.sleep(0.02)
            await admin.create_partitions({name: NewPartitions(3)})

            async def partitions() -> list[int]:
                (described,) = await admin.describe_topics([name])
                return sorted(part["partition"] for part in described["partitions"])

            # A broker of Kafka hears of it a little after the answer.
            while await partitions() != [0, 1, 2]:
                await asyncio.sleep(0.02)
            assert "60000" in str(await admin.describe_configs([resource]))
            await asyncio.to_thread(produce, server, name, [b"%d" % number for number in range(10)])
            await admin.delete_records({TopicPartition(name, 0): RecordsToDelete(before_offset=4)})
            async with consumer_of(server, name, group_id=group_id) as consumer:
                assert (await consumer.getone()).offset == 4
                await consumer.commit()
                assert group_id in str(await admin.list_consumer_groups())
                assert "Stable" in str(await admin.describe_consumer_groups([group_id]))
            offsets = await admin.list_consumer_group_offsets(group_id)
            assert offsets[TopicPartition(name, 0)].offset == 5
            deleted = await admin.delete_topics([name])
            assert [error for _, error in deleted.topic_error_codes] == [0]
            while name in await admin.list_topics():
                await asyncio.sleep(0.02)
            cluster = await admin.describe_cluster()
            assert len(cluster["brokers"]) == server.brokers

    run(administer())
