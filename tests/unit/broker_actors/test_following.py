"""A partition that follows, leads and follows again in one process, on real logs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from appliance.base.errors import ErrorCode
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.log_care import retain_as_follower
from appliance.controller.records import LeaderRecoveryState, PartitionChanged, PartitionState
from appliance.partition.events import AppendFetched, FetchAnswer
from appliance.partition.follower import PartitionFollower
from appliance.partition.leader_start import Earlier, LeaderStart
from appliance.partition.replica_sessions import ReplicaSession
from appliance.records.batch import parse_header, stamp
from appliance.records.builder import build_batch
from tests.unit.broker_actors.test_partition_host import BROKER_ID, TOPIC_ID, World, append


def state(leader: int, leader_epoch: int, *isr: int) -> PartitionState:
    return PartitionState(0, leader, leader_epoch, 10 + leader_epoch, (BROKER_ID, 2, 3), isr or (BROKER_ID, 2, 3))


def lead(world: World, leader_epoch: int, *isr: int) -> HostedPartition:
    world.commit(PartitionChanged(TOPIC_ID, state(BROKER_ID, leader_epoch, *isr)))
    return world.partition()


def follow(hosted: HostedPartition, leader_epoch: int) -> PartitionFollower:
    machine = PartitionFollower(
        leader_id=2,
        leader_epoch=leader_epoch,
        epochs=hosted.log.leader_epochs,
        log_start_offset=hosted.log_start_offset,
        log_end_offset=hosted.log_end_offset,
        high_watermark=hosted.high_watermark,
        backoff_max_ms=1_000,
    )
    hosted.follow(machine)
    return machine


def batch_at(offset: int, leader_epoch: int) -> memoryview:
    batch = memoryview(bytearray(build_batch([(1_700_000_000_000, b"k", b"x", [])])))
    stamp(batch, offset, leader_epoch)
    return batch


def replicate(world: World, hosted: HostedPartition, offset: int, leader_epoch: int, leader_mark: int) -> None:
    machine = hosted.follower
    assert machine is not None
    position = machine.position
    answer = FetchAnswer(position.leader_epoch, position.offset, ErrorCode.NONE, leader_mark, 0, has_records=True)
    assert machine.answered(answer) == [AppendFetched()]
    batch = batch_at(offset, leader_epoch)
    hosted.append_replicated(batch, parse_header(batch), world.clock.now_ms())
    world.host.end_of_tick()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create()
    return made


def test_a_follower_takes_batches_as_they_are_and_its_high_watermark_follows_the_leaders(world: World) -> None:
    world.commit(PartitionChanged(TOPIC_ID, state(2, 1)))
    hosted = world.partition()
    follow(hosted, 1)
    replicate(world, hosted, 0, 1, leader_mark=0)
    assert (hosted.log_end_offset, hosted.high_watermark) == (1, 0)
    replicate(world, hosted, 1, 1, leader_mark=9)
    assert (hosted.log_end_offset, hosted.high_watermark) == (2, 2)
    assert hosted.log.leader_epochs.entries == [(1, 0)]
    assert hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER and hosted.may_be_read


def test_it_leads_follows_and_leads_again(world: World) -> None:
    for round_number in range(3):
        hosted = lead(world, 1 + 2 * round_number, BROKER_ID)
        told = append(hosted)
        world.host.end_of_tick()
        assert told == [(ErrorCode.NONE, 2 * round_number)]
        world.commit(PartitionChanged(TOPIC_ID, state(2, 2 + 2 * round_number)))
        assert append(hosted) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        follow(hosted, 2 + 2 * round_number)
        replicate(world, hosted, 2 * round_number + 1, 2 + 2 * round_number, leader_mark=2 * round_number + 2)
    assert [epoch for epoch, _ in hosted.log.leader_epochs.entries] == [1, 2, 3, 4, 5, 6]


def test_acks_wait_for_followers_and_fail_when_the_isr_becomes_too_small(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(min_insync_replicas="2")
    hosted = lead(world, 1)
    first, second = append(hosted), append(hosted)
    world.host.end_of_tick()
    assert first == second == []
    for replica_id in (2, 3):
        hosted.follower_fetched(replica_id, 1, 1, 0, world.clock.now_ms())
    assert (first, second, hosted.high_watermark) == ([(ErrorCode.NONE, 0)], [], 1)
    world.commit(PartitionChanged(TOPIC_ID, state(BROKER_ID, 1, BROKER_ID)))
    hosted.isr_answered((BROKER_ID,), 99, (BROKER_ID, 2, 3), world.clock.now_ms())
    assert second == [(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]
    assert append(hosted) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert not hosted.plain


def test_a_higher_leader_epoch_ends_service_at_once(world: World) -> None:
    hosted = lead(world, 1)
    told = append(hosted)
    world.host.end_of_tick()
    hosted.superseded(2)
    assert told == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER and not hosted.plain
    assert lead(world, 2).refusal() is ErrorCode.NONE


def test_a_leader_that_waits_for_an_earlier_one_serves_nothing_and_its_coordinators_do_not_load(world: World) -> None:
    told: list[bool] = []
    world.host.on_leadership("t", lambda _, leads: told.append(leads))
    told.clear()
    start = LeaderStart(1, 2_500, {}, 0, (Earlier(2, 7, True),))
    world.host.replication.start_of = lambda hosted, state: start  # type: ignore[method-assign]
    hosted = lead(world, 1)
    assert hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER and not hosted.plain and True not in told
    world.host.begun(hosted)
    assert hosted.refusal() is ErrorCode.NONE and told[-1]


def test_under_a_soft_lease_it_serves_while_all_in_sync_have_fetched_lately(world: World) -> None:
    hosted = lead(world, 1)
    world.host.set_soft_lease(True)
    assert hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for replica_id in (2, 3):
        session = ReplicaSession(replica_id, replica_id, 1)
        followed = session.follow((TOPIC_ID, 0))
        followed.matched, followed.current_leader_epoch = True, 1
        session.answered(world.clock.monotonic_ms())
        session.fetched()
        hosted.followed_by.append(followed)
    assert hosted.refusal() is ErrorCode.NONE and not hosted.plain
    world.background.advance(2_001)
    assert hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.host.set_soft_lease(False)
    assert hosted.refusal() is ErrorCode.NONE and hosted.plain


def test_a_follower_lets_go_of_what_is_below_the_leaders_log_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(remote_storage_enable="false")
    world.commit(PartitionChanged(TOPIC_ID, state(2, 1)))
    hosted = world.partition()
    follow(hosted, 1)
    for offset in range(4):
        replicate(world, hosted, offset, 1, leader_mark=4)
        hosted.log.roll(world.clock.now_ms())
    hosted.raise_log_start(2)
    retain_as_follower(hosted, world.clock.now_ms())
    assert hosted.log.segments[0].base_offset == 2


def test_a_tiered_follower_keeps_what_the_object_store_may_lack(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(remote_storage_enable="true", local_retention_ms="0")
    world.commit(PartitionChanged(TOPIC_ID, state(2, 1)))
    hosted = world.partition()
    follow(hosted, 1)
    for offset in range(4):
        replicate(world, hosted, offset, 1, leader_mark=4)
        hosted.log.roll(world.clock.now_ms())
    retain_as_follower(hosted, world.clock.now_ms())
    assert hosted.log.segments[0].base_offset == 0
    hosted.tiered_to(2)
    world.background.advance(10)
    retain_as_follower(hosted, world.clock.now_ms())
    assert hosted.log.segments[0].base_offset == 2


def test_a_leader_that_has_recovered_tells_the_controller(world: World) -> None:
    proposed: list[tuple[int, ...]] = []
    world.host.replication.propose_isr = lambda hosted, isr, epoch: proposed.append(isr)  # type: ignore[method-assign]
    recovering = msgspec.structs.replace(
        state(BROKER_ID, 1, BROKER_ID), leader_recovery_state=LeaderRecoveryState.RECOVERING
    )
    world.commit(PartitionChanged(TOPIC_ID, recovering))
    hosted = world.partition()
    assert hosted.recovering and hosted.refusal() is ErrorCode.NOT_LEADER_OR_FOLLOWER and proposed == []
    hosted.recovered()
    assert hosted.refusal() is ErrorCode.NONE and proposed == [(BROKER_ID,)]


@pytest.mark.parametrize("next_leader", [3, BROKER_ID], ids=["another leader", "this one"])
def test_what_is_staged_when_the_leader_changes_keeps_its_epoch(world: World, next_leader: int) -> None:
    world.commit(PartitionChanged(TOPIC_ID, state(2, 1)))
    hosted = world.partition()
    follow(hosted, 1)
    batch = batch_at(0, 1)
    hosted.append_replicated(batch, parse_header(batch), world.clock.now_ms())
    # In the same tick, before anything is written.
    world.commit(PartitionChanged(TOPIC_ID, state(next_leader, 2)))
    if next_leader != BROKER_ID:
        follow(hosted, 2)
    world.host.end_of_tick()
    assert hosted.log.log_end_offset == 1
    assert hosted.log.leader_epochs.entries == [(1, 0)] + [(2, 1)] * (next_leader == BROKER_ID)
