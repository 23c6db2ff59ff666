"""The backup of groups through bad days: zombies, lost and late answers, lost disks."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.base.object_store import (
    ETagMismatch,
    ObjectExists,
    ObjectInfo,
    ObjectNotFound,
    StoredObject,
    StoreUnavailable,
    StoreUndecided,
)
from appliance.broker_actors.group_backup import GroupBackup
from appliance.broker_actors.internal_topics import CONSUMER_OFFSETS
from appliance.controller.delta import image_of
from appliance.controller.records import PartitionChanged, PartitionState, TopicCreated
from appliance.coordinator.backup import BackupHead, LastRecords, parse_backup
from appliance.records.builder import build_batch
from appliance.tiering.names import groups_name
from tests.support.seeds import seeds
from tests.support.tiering_kit import Hosted, ManualBackground, ManualClock

TOPIC_ID = uuid.UUID(int=9, version=4)
NAME = groups_name(TOPIC_ID, 0)
PARTITION = PartitionState(0, 1, 1, 0, (1,), (1,))
IMAGE = image_of([TopicCreated(CONSUMER_OFFSETS, TOPIC_ID), PartitionChanged(TOPIC_ID, PARTITION)])
INTERVAL_MS = 100
EVENTS = 60


class Replica(Hosted):
    """A broker's copy of one partition of `__consumer_offsets`."""

    def __init__(self, path: Path, clock: ManualClock, leader_epoch: int, recovering: bool) -> None:
        configs = {"cleanup_policy": "compact"}
        super().__init__(path, clock, topic_id=TOPIC_ID, leader_epoch=leader_epoch, recovering=recovering, **configs)
        self.topic = CONSUMER_OFFSETS

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    def refusal(self) -> ErrorCode:
        return ErrorCode.NONE

    def records(self, end: int | None = None) -> dict[bytes, bytes]:
        known = LastRecords()
        known.read(self.log.batches(0, end))
        return known.records


class BadStore:
    """One object, whose writes may be lost, refused or come late."""

    url = "memory:"

    def __init__(self, chance: random.Random, check: Callable[[bytes | None, bytes], None]) -> None:
        self.chance = chance
        self.check = check
        self.body: bytes | None = None
        self.late: list[Callable[[], str]] = []
        self.trouble = True

    def _etag(self) -> str:
        return hashlib.sha256(self.body or b"").hexdigest()

    def get(self, name: str, *, start: int = 0, length: int | None = None, etag: str | None = None) -> StoredObject:
        if self.trouble and self.chance.random() < 0.2:
            raise StoreUnavailable("503")
        if self.body is None:
            raise ObjectNotFound(name)
        return StoredObject(self.body, self._etag(), len(self.body))

    def _put(self, data: bytes) -> str:
        self.check(self.body, data)
        self.body = data
        return self._etag()

    def _write(self, write: Callable[[], str]) -> str:
        fate = self.chance.choice(["", "", "lose", "refuse", "late"]) if self.trouble else ""
        if fate == "late":
            self.late.append(write)
        if fate in ("late", "refuse"):
            raise StoreUndecided(fate)
        etag = write()
        if fate == "lose":
            raise StoreUndecided(fate)
        return etag

    def create(self, name: str, data: bytes | memoryview) -> str:
        def write() -> str:
            if self.body is not None:
                raise ObjectExists(name)
            return self._put(bytes(data))

        return self._write(write)

    def swap(self, name: str, data: bytes, etag: str) -> str:
        def write() -> str:
            if self.body is None or self._etag() != etag:
                raise ETagMismatch(name)
            return self._put(data)

        return self._write(write)

    def arrive(self) -> None:
        """A late write reaches the store."""
        if self.late:
            try:
                self.late.pop(self.chance.randrange(len(self.late)))()
            except (ObjectExists, ETagMismatch):
                return

    def get_if_changed(self, name: str, etag: str) -> StoredObject | None:
        raise NotImplementedError

    def delete(self, name: str) -> None:
        raise NotImplementedError

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        raise NotImplementedError


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.background = ManualBackground(self.clock)
        self.store = BadStore(self.chance, self.check)
        self.epoch = 0
        self.replicas: dict[int, Replica] = {}
        """Every leader that ever was, by epoch; those that were replaced may go on for a while."""
        self.backups: dict[int, GroupBackup] = {}
        self.elect(lost=False)

    @property
    def leader(self) -> Replica:
        return self.replicas[self.epoch]

    def elect(self, *, lost: bool) -> None:
        """Another broker leads, with the whole log or with nothing."""
        before = self.replicas.get(self.epoch)
        self.epoch += 1
        replica = Replica(self.path / f"{self.epoch}", self.clock, self.epoch, recovering=lost)
        if before is not None and not lost:
            for batch in before.log.batches(0):
                replica.append_batch(bytes(batch))
        config = BrokerConfig({"tiering.groups.interval.ms": str(INTERVAL_MS)})
        backup = GroupBackup(self.store, self.background, self.clock, config, lambda: IMAGE)
        self.replicas[self.epoch], self.backups[self.epoch] = replica, backup
        stored = parse_backup(self.store.body) if lost and self.store.body is not None else None
        self.restored_from = stored[0] if stored is not None else None
        backup.leading(replica)  # type: ignore[arg-type]
        backup.start()

    def check(self, before: bytes | None, after: bytes) -> None:
        head, batches = parse_backup(after)
        known = LastRecords()
        known.read(batches)
        assert known.records == self.replicas[head.leader_epoch].records(head.end_offset), "it is its writer's log"
        if before is not None:
            earlier: BackupHead = parse_backup(before)[0]
            assert head.leader_epoch >= earlier.leader_epoch, "a zombie has written"
            assert head.version == earlier.version + 1

    def commit(self, replica: Replica) -> None:
        value = None if self.chance.random() < 0.2 else b"%d" % self.chance.randrange(1_000)
        replica.append_batch(build_batch([(0, b"group %d" % self.chance.randrange(6), value, ())]))

    def pass_time(self) -> None:
        self.background.pass_time(INTERVAL_MS)
        jobs, self.background.jobs = self.background.jobs, []
        self.chance.shuffle(jobs)
        for work, done in jobs:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

    def settle(self) -> None:
        for _ in range(40):
            self.pass_time()

    def run(self) -> None:
        for _ in range(EVENTS):
            event = self.chance.random()
            if event < 0.5 and not self.leader.recovering:
                self.commit(self.leader)
            elif event < 0.55:
                self.elect(lost=False) if not self.leader.recovering else None
            elif event < 0.58:
                self.total_loss()
            elif event < 0.65:
                self.store.arrive()
            else:
                self.pass_time()
        self.store.trouble = False
        self.settle()
        assert not self.leader.recovering
        self.commit(self.leader)
        self.settle()
        while self.store.late:
            self.store.arrive()
        self.settle()
        assert self.store.body is not None
        head, batches = parse_backup(self.store.body)
        known = LastRecords()
        known.read(batches)
        assert (head.leader_epoch, known.records) == (self.epoch, self.leader.records())

    def total_loss(self) -> None:
        """Nothing is left of any broker but what lies in the store; a late write may still come."""
        for backup, replica in zip(self.backups.values(), self.replicas.values(), strict=True):
            backup.close()
            backup.stopped(replica)  # type: ignore[arg-type]
        self.elect(lost=True)


@pytest.mark.parametrize("seed", seeds(40))
def test_the_backup_is_its_writers_log_and_the_last_leaders_in_the_end(seed: int, tmp_path: Path) -> None:
    World(tmp_path, seed).run()
