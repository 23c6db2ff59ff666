"""Groups with aiokafka's consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener

from tests.support.broker import RunningCluster
from tests.support.group_clients import PATIENCE_S, new_topic


class Listener(ConsumerRebalanceListener):
    """Counts what a member is given."""

    def __init__(self) -> None:
        self.assigned: list[set[TopicPartition]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.assigned.append(assigned)


async def start(cluster: RunningCluster, group_id: str, topic: str, **options: Any) -> tuple[Any, Listener]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        **options,
    )
    listener = Listener()
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    return consumer, listener


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_two_members_share_a_topic_and_take_over_from_each_other(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=4, records=8)

    async def run() -> None:
        first, _ = await start(cluster, "aio-share", topic)
        seen = {(record.partition, record.offset) for record in [await first.getone() for _ in range(8)]}
        assert len(seen) == 8
        await first.commit({TopicPartition(topic, 0): (2, "a note")})
        assert await first.committed(TopicPartition(topic, 0)) == 2
        second, _ = await start(cluster, "aio-share", topic)
        await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
        await first.stop()
        await until(lambda: len(second.assignment()) == 4)
        await second.stop()

    asyncio.run(run())


def test_static_members_restart_without_a_rebalance(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=4)

    async def run() -> None:
        stays, listener = await start(cluster, "aio-static", topic, group_instance_id="stays")
        leaves, _ = await start(cluster, "aio-static", topic, group_instance_id="leaves")
        await until(lambda: len(listener.assigned[-1]) == len(leaves.assignment()) == 2)
        given, times = leaves.assignment(), len(listener.assigned)
        await leaves.stop()
        back, _ = await start(cluster, "aio-static", topic, group_instance_id="leaves")
        await until(lambda: back.assignment() == given)
        assert len(listener.assigned) == times
        await back.stop()
        await stays.stop()

    asyncio.run(run())
