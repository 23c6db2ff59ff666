"""Directed days for rules of the timed layer, whose absence chance shows too seldom. Clients reach everybody."""

from __future__ import annotations

from typing import Any

from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.cluster_clients import LOSSY, PLAIN
from tests.support.cluster_world import World

READY_MS = 2_500
LONG_MS = 8_500
WITHOUT_FOLLOWERS_MS = 950
LAGGING_MS = 2_500
"""Longer than `replica.lag.time.max.ms` and the look that notices."""


def quiet_world(seed: int) -> World:
    """A cluster of three brokers that serves, on a day without troubles, with busy clients."""
    world = World(seed, troubles=False, brokers=3, replica_socket_timeout_ms="30000", controller_takeover_ms="400")
    world.clients.pause_ms = (40, 160)
    world.clients.partitions, world.clients.impatient = ((PLAIN, 0),), 5
    world.begin()
    world.run_until(READY_MS)
    return world


def _ask(world: World, request: Any) -> None:
    controller = next(one for one in world.controllers.values() if one.controller.active)
    broker = next(
        one for one in world.brokers.values() if not world.faults.is_cut(one.name, controller.name) and one.alive
    )
    broker.later(0, lambda: broker.broker.controller.call(request, lambda answer: None, timeout_ms=2_000))


def _lose_followers(world: World, leader: int) -> None:
    """They fetch no more, and are in sync still: a new leader among them has waited for a part of the lease already."""
    for broker_id in world.broker_ids:
        if broker_id != leader:
            world.faults.cut(f"b{broker_id}", f"b{leader}", until_ms=world.now + LONG_MS)
    world.run_until(world.now + WITHOUT_FOLLOWERS_MS)


def leader_cut_off(seed: int) -> World:
    """A leader that only clients reach: it stops before the next one begins.

    That one has not fetched for a while, so the leader's silence of itself takes it less long.
    """
    world = quiet_world(seed)
    state = world.checks.image.topics[PLAIN].partitions[0]
    _lose_followers(world, state.leader)
    world.faults.cut_off(f"b{state.leader}", until_ms=world.now + 4_500)
    world.run_until(world.now + 4_500)
    return world


def leader_and_controller_cut_off_together(seed: int) -> World:
    """The old controller goes on to give leases to the old leader, without the store; another one takes over."""
    world = quiet_world(seed)
    state = world.checks.image.topics[PLAIN].partitions[0]
    active = next(one for one in world.controllers.values() if one.controller.active)
    _lose_followers(world, state.leader)
    until_ms = world.now + LONG_MS
    world.faults.cut_off(f"b{state.leader}", active.name, until_ms=until_ms)
    world.faults.store_goes_away(active.name, until_ms)
    world.run_until(until_ms)
    return world


def leader_moved_while_cut_off(seed: int, *, next_dies: bool) -> World:
    """A planned move from a leader that does not hear of it; the next leader may die before it begins."""
    world = quiet_world(seed)
    state = world.checks.image.topics[PLAIN].partitions[0]
    old = state.leader
    following, last = (member for member in state.replicas if member != old)
    part = ReassignablePartition(partition_index=0, replicas=[following, last, old])
    topics = [ReassignableTopic(name=PLAIN, partitions=[part])]
    _ask(world, AlterPartitionReassignmentsRequest(timeout_ms=2_000, topics=topics))
    world.run_until(world.now + 300)
    world.faults.cut_off(f"b{old}", until_ms=world.now + 4_500)
    partitions = [TopicPartitions(topic=PLAIN, partitions=[0])]
    _ask(world, ElectLeadersRequest(election_type=0, topic_partitions=partitions, timeout_ms=2_000))
    end_ms = world.now + 4_500
    while next_dies and world.now < end_ms:
        world.run_until(world.now + 5)
        if world.checks.image.topics[PLAIN].partitions[0].leader == following:
            world.faults.crash(world.brokers[following])
            break
    world.run_until(end_ms)
    return world


def followers_left_behind(seed: int) -> tuple[World, int]:
    """A leader dies alone in the ISR; both others live, and the one that follows first in the list has less.

    Returns the world in which somebody else leads, and who has the longer log.
    """
    world = World(seed, troubles=False, brokers=3, min_insync_replicas="1", replica_socket_timeout_ms="30000")
    world.clients.pause_ms = (40, 160)
    world.clients.partitions = ((LOSSY, 0),)
    world.begin()
    world.run_until(READY_MS)
    state = world.checks.image.topics[LOSSY].partitions[0]
    short, long = (member for member in state.replicas if member != state.leader)
    for behind in (short, long):
        world.faults.cut(f"b{behind}", f"b{state.leader}", until_ms=world.now + LONG_MS)
        world.run_until(world.now + LAGGING_MS)
    isr = world.checks.image.topics[LOSSY].partitions[0].isr
    assert isr == (state.leader,), f"seed {seed}: {isr} are in sync"
    world.brokers[state.leader].die()
    world.run_until(world.now + 2_000)
    return world, long
