"""A broker with two data directories, one of which fails, runs full, or is missing."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.base.disk import SystemDisk
from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.log_care import LogCare
from appliance.broker_actors.partition_host import PartitionHost
from appliance.controller.delta import MetadataDelta
from appliance.controller.image import MetadataImage
from appliance.controller.records import PartitionChanged, PartitionState, Record, TopicConfigSet, TopicCreated
from appliance.log.directory_identity import DirectoryLock
from appliance.log.errors import LogUnavailable
from appliance.log.log_manager import LogManager
from appliance.records.builder import build_batch
from tests.support.hand_loop import HandBackground, HandClock

ME = 1
TOPIC_ID = uuid.UUID(int=77)
TIMESTAMP = 1_700_000_000_000


class TwoDisks(SystemDisk):
    """Fails calls for files below a folder with an error of the test's choice."""

    def __init__(self) -> None:
        self.failing: dict[tuple[str, Path], int] = {}
        self.paths: dict[int, Path] = {}
        self.free = 1 << 40

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        self._check("open", path)
        descriptor = super().open(path, flags, mode)
        self.paths[descriptor] = path
        return descriptor

    def writev(self, descriptor: int, pieces: Sequence[bytes | memoryview]) -> int:
        self._check("writev", self.paths[descriptor])
        return super().writev(descriptor, pieces)

    def fdatasync(self, descriptor: int) -> None:
        self._check("fdatasync", self.paths[descriptor])
        super().fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._check("fsync", self.paths[descriptor])
        super().fsync(descriptor)

    def free_bytes(self, path: Path) -> int:
        self._check("free_bytes", path)
        return self.free

    def _check(self, method: str, path: Path) -> None:
        for (failing, folder), code in self.failing.items():
            if failing == method and Path(path).is_relative_to(folder):
                raise OSError(code, "on purpose")


class World:
    """One broker over the directories `a` and `b`, and a topic whose partition 0 lies in `a` and 1 in `b`."""

    def __init__(self, folder: Path, image: MetadataImage | None = None, broken: str = "") -> None:
        self.clock = HandClock()
        self.background = HandBackground(self.clock)
        self.disk = TwoDisks()
        self.config = BrokerConfig({"remote.log.storage.system.enable": "false", "log.flush.interval.ms": "100"})
        self.a, self.b = folder / "a", folder / "b"

        def lock(path: Path) -> DirectoryLock:
            if path.name == broken:
                raise OSError(errno.EIO, "on purpose")
            return DirectoryLock(path)

        self.logs = LogManager(
            [self.a, self.b],
            broker_id=ME,
            cluster_id="c",
            clock=self.clock,
            disk=self.disk,
            min_free_bytes=1_000,
            lock=lock,
        )
        self.host = PartitionHost(ME, self.logs, self.config, self.clock, self.background, lambda: None)
        self.host.set_serving(True)
        self.image = image or MetadataImage()
        self.logs.load_all(lambda topic: self.host.config_of(self.image, topic))
        self.number = self.image.position
        self.host.directories.expect(self.image, ME)
        self.host.apply(self.image, sorted(self.image.topics_by_id))
        self.care = LogCare(self.host, self.logs, self.config, self.clock, self.background)
        self.care.start()

    def commit(self, *records: Record) -> None:
        delta = MetadataDelta(self.image)
        self.number += 1
        delta.apply_commit(self.number, records)
        self.image = delta.build()
        self.host.apply(self.image, sorted(delta.changed_topics))

    def create(self, **configs: str) -> None:
        settings = [TopicConfigSet(TOPIC_ID, name.replace("_", "."), value) for name, value in configs.items()]
        self.commit(TopicCreated("t", TOPIC_ID), *settings, *[PartitionChanged(TOPIC_ID, led(n)) for n in range(2)])
        assert [self.partition(n).log.directory.parent for n in range(2)] == [self.a, self.b]

    def partition(self, number: int) -> HostedPartition:
        hosted = self.host.get("t", number)
        assert hosted is not None
        return hosted

    def append(self, number: int) -> ErrorCode:
        """The outcome of one record."""
        told: list[ErrorCode] = []
        batch = build_batch([(TIMESTAMP, b"k", b"v", [])])
        self.partition(number).append_records(batch, lambda error, offset: told.append(error))
        self.host.end_of_tick()
        (outcome,) = told
        return outcome

    def values(self, number: int) -> int:
        return sum(1 for _ in self.partition(number).read_committed_batches())

    def end(self) -> None:
        self.care.close()
        self.logs.close(self.host.high_watermarks())


def led(number: int, leader_epoch: int = 0) -> PartitionState:
    return PartitionState(number, ME, leader_epoch, leader_epoch, (ME,), (ME,))


STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_write_takes_only_its_directory_offline(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    assert [world.append(0), world.append(1)] == [ErrorCode.NONE] * 2
    world.disk.failing["writev", world.a] = errno.EIO
    assert [world.append(0), world.append(1)] == [STORAGE_ERROR, ErrorCode.NONE]
    assert [world.partition(n).refusal() for n in range(2)] == [STORAGE_ERROR, ErrorCode.NONE]
    assert world.partition(1).plain and not world.partition(0).plain
    ((partition, reason),) = world.host.out_of_service()
    assert partition == TopicPartition("t", 0) and "t-0" in reason and "on purpose" in reason
    assert world.host.write_errors == 1
    world.disk.failing.clear()
    assert world.append(0) == STORAGE_ERROR, "nothing is believed until a restart"
    world.end()
    again = World(tmp_path, world.image)
    assert [again.values(0), again.values(1)] == [1, 2]


@pytest.mark.parametrize("configs", [{}, {"flush_messages": "1"}], ids=["in-time", "before-acks"])
def test_a_failed_flush_takes_only_its_directory_offline(tmp_path: Path, configs: dict[str, str]) -> None:
    world = World(tmp_path)
    world.create(**configs)
    world.disk.failing["fdatasync", world.b] = errno.EIO
    outcomes = [world.append(0), world.append(1)]
    world.background.advance(2_000)
    assert [bool(world.partition(n).offline) for n in range(2)] == [False, True]
    assert [world.append(0), world.append(1)] == [ErrorCode.NONE, STORAGE_ERROR]
    if configs:
        assert outcomes[0] == ErrorCode.NONE and outcomes[1] != ErrorCode.NONE, "only what is durable is acknowledged"


def test_a_directory_that_is_too_full_for_indexes_does_not_keep_others_from_their_flushes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(index_interval_bytes="1")
    for _ in range(3):
        assert [world.append(0), world.append(1)] == [ErrorCode.NONE] * 2
    world.disk.failing["open", world.a / "t-0" / f"{0:020d}.index"] = errno.ENOSPC
    world.disk.free = 0
    world.background.advance(5_000)
    assert [world.partition(n).log.recovery_point for n in range(2)] == [0, 3]
    assert world.partition(0).write_refusal and not world.partition(0).offline
    assert not any(segment.references for n in range(2) for segment in world.partition(n).log.segments)
    world.disk.failing.clear()
    world.disk.free = 1_000
    world.background.advance(5_000)
    assert world.partition(0).log.recovery_point == 3


@pytest.mark.parametrize("isr, elr", [((2, ME), ()), ((2,), (ME,))], ids=["in sync", "eligible"])
def test_a_log_that_is_gone_is_begun_anew_when_nobody_would_elect_it_for_what_it_had(
    tmp_path: Path, isr: tuple[int, ...], elr: tuple[int, ...]
) -> None:
    delta = MetadataDelta(MetadataImage())
    state = PartitionState(0, 2, 0, 0, (ME, 2), isr, elr)
    delta.apply_commit(1, [TopicCreated("t", TOPIC_ID), PartitionChanged(TOPIC_ID, state)])
    world = World(tmp_path, delta.build())
    assert world.host.get("t", 0) is None and world.host.directories.lost == [(TOPIC_ID, 0)]
    world.commit(PartitionChanged(TOPIC_ID, PartitionState(0, 2, 0, 1, (ME, 2), (2,))))
    assert world.partition(0).log.log_end_offset == 0 and world.host.directories.lost == []
    world.end()


def test_a_log_that_may_be_begun_anew_by_what_was_decided_meanwhile_is_begun(tmp_path: Path) -> None:
    world = World(tmp_path)
    at = TopicPartition("t", 0)
    world.logs.not_found = {at: TOPIC_ID}
    world.background.later = True
    world.commit(
        TopicCreated("t", TOPIC_ID), PartitionChanged(TOPIC_ID, PartitionState(0, 2, 0, 0, (ME, 2), (2,), (ME,)))
    )
    ((work, done),) = world.background.waiting
    world.background.waiting.clear()
    with pytest.raises(LogUnavailable):
        raise work()[0]
    refused = work()
    world.commit(PartitionChanged(TOPIC_ID, PartitionState(0, 2, 0, 1, (ME, 2), (2,))))
    done(refused)
    world.background.do_work()
    assert world.logs.logs[at].topic_id == TOPIC_ID and world.host.get("t", 0) is not None
    world.end()


def test_a_full_directory_refuses_writes_for_its_own_partitions_and_takes_them_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.append(0)
    world.disk.failing["writev", world.a] = errno.ENOSPC
    assert [world.append(0), world.append(1)] == [STORAGE_ERROR, ErrorCode.NONE]
    assert world.host.out_of_service() == []
    assert world.partition(0).refusal() == ErrorCode.NONE, "reads go on"
    assert (world.values(0), world.partition(0).write_refusal) == (1, f"the data directory {world.a} is full")
    world.disk.failing.clear()
    world.disk.free = 999
    world.background.advance(1_000)
    assert world.append(0) == STORAGE_ERROR
    world.disk.free = 1_000
    world.background.advance(1_000)
    assert world.append(0) == ErrorCode.NONE and world.partition(0).plain
    assert (world.values(0), world.values(1)) == (2, 1)


def test_a_partition_that_is_opened_in_a_full_directory_refuses_writes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    for directory in (world.a, world.b):
        world.disk.failing["writev", directory] = errno.ENOSPC
    world.append(0), world.append(1)
    world.disk.failing.clear()
    world.disk.free = 0
    other = uuid.UUID(int=78)
    world.commit(TopicCreated("u", other), PartitionChanged(other, led(0)))
    hosted = world.host.get("u", 0)
    assert hosted is not None and hosted.write_refusal and not hosted.plain


def test_checkpoints_that_cannot_be_written_take_their_directory_offline(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.disk.failing["fsync", world.a] = errno.EIO
    world.background.advance(10_000)
    assert [bool(world.partition(n).offline) for n in range(2)] == [True, False]


def test_a_disk_that_does_not_tell_its_space_is_offline(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.disk.failing["free_bytes", world.b] = errno.EIO
    world.background.advance(1_000)
    assert [bool(world.partition(n).offline) for n in range(2)] == [False, True]


def test_a_log_that_cannot_be_made_on_a_failing_disk_is_made_on_another(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    world.disk.failing["open", world.a] = errno.EIO
    other = uuid.UUID(int=78)
    world.commit(TopicCreated("u", other), PartitionChanged(other, led(0)))
    assert world.host.get("u", 0) is None
    assert world.partition(0).offline and not world.partition(1).offline
    world.background.advance(2_000)
    hosted = world.host.get("u", 0)
    assert hosted is not None and hosted.log.directory.parent == world.b


def test_what_may_lie_in_a_missing_directory_is_a_storage_error_and_not_an_empty_log(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    assert [world.append(0), world.append(1)] == [ErrorCode.NONE] * 2
    world.end()

    again = World(tmp_path, world.image, broken="b")
    assert again.host.get("t", 1) is None and again.host.absence_of(TOPIC_ID, 1) == STORAGE_ERROR
    assert again.host.absence_of("t", 1) == STORAGE_ERROR
    assert again.append(0) == ErrorCode.NONE
    ((partition, reason),) = again.host.out_of_service()
    assert partition == TopicPartition("t", 1) and f"({again.b})" in reason
    assert not (again.a / "t-1").exists()
    assert not again.host.is_opening, "nobody waits for it"
    again.commit(PartitionChanged(TOPIC_ID, led(1, leader_epoch=1)))
    assert again.host.absence_of("t", 1) == STORAGE_ERROR and again.host.get("t", 1) is None
    other = uuid.UUID(int=78)
    again.commit(TopicCreated("u", other), PartitionChanged(other, led(0)))
    assert again.host.get("u", 0) is not None, "new topics are made where they can be"
    again.end()

    back = World(tmp_path, again.image)
    assert [back.values(0), back.values(1)] == [2, 1]
    assert back.host.out_of_service() == []
