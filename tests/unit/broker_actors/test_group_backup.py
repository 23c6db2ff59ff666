from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.broker_actors.group_backup import RETRY_MS, GroupBackup
from appliance.broker_actors.internal_topics import CONSUMER_OFFSETS
from appliance.controller.delta import image_of
from appliance.controller.image import MetadataImage
from appliance.controller.records import PartitionChanged, PartitionState, TopicCreated
from appliance.coordinator.backup import BackupHead, LastRecords, parse_backup
from appliance.records.builder import build_batch
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.names import groups_name
from tests.support.fault_store import FaultStore, away
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock

TOPIC_ID = uuid.UUID(int=9, version=4)
INTERVAL_MS = 1_000


class GroupsPartition(Hosted):
    """A partition of `__consumer_offsets` as a broker hosts it."""

    offline = ""

    def __init__(self, path: Path, clock: ManualClock, **more: Any) -> None:
        super().__init__(path, clock, topic_id=TOPIC_ID, cleanup_policy="compact", **more)
        self.topic = CONSUMER_OFFSETS

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    def refusal(self) -> ErrorCode:
        return ErrorCode.NONE

    def go_offline(self, reason: str) -> None:
        self.offline = reason

    def commit(self, key: bytes, value: bytes | None) -> None:
        self.append_batch(build_batch([(0, key, value, ())]))


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = FaultStore(DirectoryStore(path / "objects"))
        partition = PartitionState(0, 1, 1, 0, (1,), (1,))
        self.image: MetadataImage = image_of(
            [TopicCreated(CONSUMER_OFFSETS, TOPIC_ID), PartitionChanged(TOPIC_ID, partition)]
        )

    def backup_of(self, hosted: GroupsPartition) -> GroupBackup:
        config = BrokerConfig({"tiering.groups.interval.ms": str(INTERVAL_MS)})
        backup = GroupBackup(self.store, self.background, self.clock, config, lambda: self.image)
        backup.leading(hosted)
        backup.start()
        return backup

    def settle(self, ms: int = INTERVAL_MS) -> None:
        self.background.pass_time(ms)
        self.background.work()

    def stored(self) -> tuple[BackupHead, dict[bytes, bytes]]:
        head, batches = parse_backup(self.store.inner.get(groups_name(TOPIC_ID, 0)).data)
        known = LastRecords()
        known.read(batches)
        return head, known.records


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_committed_is_in_the_store_after_the_interval_and_nothing_new_costs_no_request(world: World) -> None:
    hosted = GroupsPartition(world.path, world.clock, leader_epoch=3)
    world.backup_of(hosted)
    world.settle()
    assert world.store.calls.total() == 0
    hosted.commit(b"a", b"1")
    hosted.commit(b"b", b"1")
    world.settle()
    head, records = world.stored()
    assert records == {b"a": b"1", b"b": b"1"}
    assert (head.leader_epoch, head.end_offset, head.partitions, head.version) == (3, 2, 1, 0)
    calls = world.store.calls.total()
    world.settle()
    assert world.store.calls.total() == calls
    hosted.commit(b"a", None)
    world.settle()
    assert world.stored()[1] == {b"b": b"1"}
    assert world.stored()[0].version == 1


def test_lost_answers_and_an_outage_delay_it(world: World) -> None:
    hosted = GroupsPartition(world.path, world.clock)
    world.backup_of(hosted)
    hosted.commit(b"a", b"1")
    world.store.rule = away()
    world.settle()
    world.store.rule = lambda operation, name: None
    hosted.commit(b"a", b"2")
    world.settle()
    world.settle()
    assert world.stored()[1] == {b"a": b"2"}


def test_a_leader_that_was_replaced_leaves_the_backup_alone(world: World) -> None:
    old = GroupsPartition(world.path / "old", world.clock, leader_epoch=3)
    new = GroupsPartition(world.path / "new", world.clock, leader_epoch=4)
    world.backup_of(old)
    newer = world.backup_of(new)
    new.commit(b"a", b"new")
    newer.tick()
    world.background.work()
    old.commit(b"a", b"old")
    world.settle()
    assert world.stored()[1] == {b"a": b"new"}


def test_a_lost_log_is_filled_from_the_backup_before_anybody_is_served(world: World) -> None:
    hosted = GroupsPartition(world.path / "first", world.clock, leader_epoch=3)
    first = world.backup_of(hosted)
    for number in range(40):
        hosted.commit(b"%d" % number, b"x" * 100_000)
    world.settle()
    first.stopped(hosted)  # type: ignore[arg-type]
    world.store.rule = away()
    lost = GroupsPartition(world.path / "second", world.clock, leader_epoch=5, recovering=True)
    world.backup_of(lost)
    world.background.work()
    assert lost.recovering, "the store is away: it waits"
    world.store.rule = lambda operation, name: None
    for _ in range(10):
        world.settle(RETRY_MS)
    assert not lost.recovering
    known = LastRecords()
    known.read(lost.log.batches(0))
    assert len(known.records) == 40
    assert world.stored()[0].leader_epoch == 5, "and is backed up by its new leader"


def test_without_a_backup_the_log_begins_empty(world: World) -> None:
    lost = GroupsPartition(world.path, world.clock, leader_epoch=5, recovering=True)
    world.backup_of(lost)
    world.background.work()
    assert (lost.recovering, lost.log.log_end_offset) == (False, 0)


def test_a_damaged_backup_is_not_taken_for_none(world: World) -> None:
    world.store.inner.create(groups_name(TOPIC_ID, 0), b"not a backup")
    lost = GroupsPartition(world.path, world.clock, leader_epoch=5, recovering=True)
    world.backup_of(lost)
    for _ in range(3):
        world.settle(RETRY_MS)
    assert lost.recovering
