"""Transactions of aiokafka."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.support.compat import Server, produce

pytestmark = pytest.mark.xdist_group("compat")
PATIENCE_S = 30


def test_aiokafka_commits_records_and_offsets_together_or_not_at_all(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    place = TopicPartition(topic, 0)

    async def run() -> tuple[list[bytes], int]:
        producer = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=group_id)
        await producer.start()
        for number in range(6):
            try:
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"%d" % number, partition=0)
                    await producer.send_offsets_to_transaction({place: number + 1}, group_id)
                    if number % 2:
                        raise KeyError(number)
            except KeyError:
                pass
        await producer.stop()
        produce(server, topic, [b"end"])
        consumer = AIOKafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=group_id,
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            consumer.assign([place])
            offset = await consumer.committed(place)
            await consumer.seek_to_beginning(place)
            values = [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(4)]
        finally:
            await consumer.stop()
        return values, offset

    assert asyncio.run(run()) == ([b"0", b"2", b"4", b"end"], 5)


def test_a_second_aiokafka_producer_fences_the_first(server: Server, group_id: str) -> None:
    topic = server.new_topic()

    async def run() -> None:
        first = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=group_id)
        second = AIOKafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=group_id)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait(topic, b"first", partition=0)
        await second.start()
        with pytest.raises(ProducerFenced):
            await first.commit_transaction()
        await first.stop()
        await second.stop()

    asyncio.run(run())
