"""Reassignments under a throttle (KIP-73), in whole clusters on virtual time: so many bytes a second, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.cluster_clients import PLAIN
from tests.support.cluster_world import World

RATE = 1_200
BATCH_BYTES_MAX = 200
FILLED_MS = 4_500
SETTLED_MS = 1_500
UNTHROTTLED_MS = 1_000
BROKER, TOPIC = 4, 2


def filled_world(seed: int) -> tuple[World, int]:
    """A world whose first partition has a log of some seconds at RATE, and a broker that has none of it."""
    world = World(seed, troubles=False, brokers=4)
    world.clients.pause_ms = (20, 60)
    world.clients.partitions = ((PLAIN, 0),)
    world.begin()
    world.run_until(FILLED_MS)
    world.clients.stop()
    world.run_until(FILLED_MS + SETTLED_MS)
    replicas = world.checks.image.topics[PLAIN].partitions[0].replicas
    (newcomer,) = set(world.broker_ids) - set(replicas)
    return world, newcomer


def ask(world: World, request: Any) -> None:
    broker = next(iter(world.brokers.values()))
    broker.later(0, lambda: broker.broker.controller.call(request, lambda answer: None, timeout_ms=2_000))
    world.run_until(world.now + 500)


def configure(world: World, kind: int, name: str, **configs: str) -> None:
    entries = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    ask(world, IncrementalAlterConfigsRequest(resources=[resource]))


def move(world: World, newcomer: int) -> Iterator[tuple[int, int, int]]:
    """Let the newcomer take the place of a follower: (ms since, bytes it has, bytes of the log), each moment."""
    state = world.checks.image.topics[PLAIN].partitions[0]
    leaver = next(member for member in state.replicas if member != state.leader)
    target = [newcomer if member == leaver else member for member in state.replicas]
    part = ReassignablePartition(partition_index=0, replicas=target)
    began_ms = world.now
    ask(
        world,
        AlterPartitionReassignmentsRequest(timeout_ms=2_000, topics=[ReassignableTopic(name=PLAIN, partitions=[part])]),
    )
    leader = size_of(world, state.leader)
    yield world.now - began_ms, size_of(world, newcomer), leader
    while world.checks.image.topics[PLAIN].partitions[0].adding:
        world.run_until(world.now + 10)
        yield world.now - began_ms, size_of(world, newcomer), leader


def size_of(world: World, broker_id: int) -> int:
    logs = [log for log in world.logs[broker_id].logs.values() if str(log.topic_partition) == f"{PLAIN}-0"]
    return logs[0].ends[-1] if logs and logs[0].ends else 0


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_more_bytes_move_than_the_rate_allows(seed: int, side: str) -> None:
    world, newcomer = filled_world(seed)
    leader = world.checks.image.topics[PLAIN].partitions[0].leader
    listed = {"leader": f"0:{leader}", "follower": f"0:{newcomer}"}[side]
    configure(world, BROKER, "", **{f"{side}_replication_throttled_rate": str(RATE)})
    configure(world, TOPIC, PLAIN, **{f"{side}_replication_throttled_replicas": listed})
    steps = list(move(world, newcomer))
    for elapsed_ms, size, _ in steps:
        # One answer, and a batch that does not fit it.
        assert size <= RATE * elapsed_ms / 1_000 + RATE + BATCH_BYTES_MAX, f"{size} bytes in {elapsed_ms} ms"
    elapsed_ms, size, whole = steps[-1]
    assert size == whole > 3 * RATE
    assert elapsed_ms >= (whole - RATE - BATCH_BYTES_MAX) * 1_000 / RATE
    # A round trip each second is what the rate loses at most.
    assert elapsed_ms <= whole * 1_300 / RATE + 1_500


@pytest.mark.parametrize("listed", ["leader", "follower", ""])
def test_a_rate_without_the_list_of_its_side_throttles_nothing(listed: str) -> None:
    world, newcomer = filled_world(0)
    other = {"leader": "follower", "follower": "leader"}.get(listed, "leader")
    configure(world, BROKER, "", **{f"{other}_replication_throttled_rate": "100"})
    if listed:
        configure(world, TOPIC, PLAIN, **{f"{listed}_replication_throttled_replicas": "*"})
    *_, (elapsed_ms, size, whole) = move(world, newcomer)
    assert size == whole and elapsed_ms < UNTHROTTLED_MS


def test_replicas_that_are_in_sync_are_not_throttled() -> None:
    world, _ = filled_world(0)
    configure(world, BROKER, "", leader_replication_throttled_rate="1", follower_replication_throttled_rate="1")
    both = {f"{side}_replication_throttled_replicas": "*" for side in ("leader", "follower")}
    configure(world, TOPIC, PLAIN, **both)
    before = world.counts["acknowledged"]
    world.clients.on = True
    world.clients.start()
    world.run_until(world.now + 2_000)
    assert world.counts["acknowledged"] > before + 20
    assert len(world.checks.image.topics[PLAIN].partitions[0].isr) == 3


def test_a_throttle_that_is_taken_away_ends_at_once() -> None:
    world, newcomer = filled_world(0)
    configure(world, BROKER, "", follower_replication_throttled_rate="1", leader_replication_throttled_rate="1")
    both = {f"{side}_replication_throttled_replicas": "*" for side in ("leader", "follower")}
    configure(world, TOPIC, PLAIN, **both)
    for elapsed_ms, size, whole in move(world, newcomer):
        assert size < whole
        if elapsed_ms > 3_000:
            break
    configure(world, TOPIC, PLAIN, **dict.fromkeys(both, ""))
    world.run_until(world.now + 1_000)
    assert size_of(world, newcomer) == whole
    assert not world.checks.image.topics[PLAIN].partitions[0].adding
