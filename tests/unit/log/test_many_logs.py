"""What one log costs when there are thousands: calls to the disk to make it and to open it, and descriptors."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest

from appliance.base.ids import TopicPartition
from appliance.base.randomness import SeededRandomness
from appliance.log.log_directory import CLOSED_TOGETHER_MIN
from appliance.log.log_manager import DirectoryLock, LogManager, Shutdown
from tests.support.fault_disk import FaultDisk
from tests.support.logs import TOPIC_ID, TestClock, append, config_of, open_log, read_all

DATA = Path("/data")
LOGS, OPEN_MAX = CLOSED_TOGETHER_MIN + 50, 20
CALLS_TO_CREATE = 6
CALLS_TO_OPEN_CLEAN = 14
CALLS_TO_OPEN_AFTER_A_CRASH = 6


class NoLock(DirectoryLock):
    """The disk in memory belongs to this test alone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def release(self) -> None:
        pass


def new_disk(seed: int = 0) -> FaultDisk:
    disk = FaultDisk(seed)
    disk.mkdir(DATA)
    disk.fsync_directory(Path("/"))
    disk.calls.clear()
    return disk


def manager_on(disk: FaultDisk) -> LogManager:
    return LogManager(
        DATA,
        broker_id=1,
        cluster_id="c",
        clock=TestClock(),
        disk=disk,
        randomness=SeededRandomness(1),
        boot_id="boot",
        lock=NoLock,
        max_open_segments=OPEN_MAX,
    )


def calls_of(disk: FaultDisk) -> int:
    count = sum(disk.calls.values())
    disk.calls.clear()
    return count


def filled(disk: FaultDisk, manager: LogManager, count: int = LOGS) -> None:
    for number in range(count):
        log = manager.create(TopicPartition("t", number), uuid.UUID(int=7), config_of())
        append(log, b"value %d" % number)


def test_a_log_is_made_with_few_calls_and_without_a_flush() -> None:
    disk = new_disk()
    open_log(DATA, disk=disk)
    assert not {"fsync", "fdatasync", "fsync_directory"} & disk.calls.keys()
    assert calls_of(disk) <= CALLS_TO_CREATE


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dies_before", [False, True])
def test_its_first_flush_makes_the_folder_durable_too(seed: int, dies_before: bool) -> None:
    """Also when the process that made the folder died before: the next one cannot know."""
    disk = new_disk(seed)
    log = open_log(DATA, disk=disk)
    append(log, b"x")
    if dies_before:
        disk.restart(power_cut=False)
        log = open_log(DATA, disk=disk)
    log.flush()
    disk.restart(power_cut=True)
    again = open_log(DATA, disk=disk, recovery_point=1)
    assert again.topic_id == TOPIC_ID
    assert [record.value for record in read_all(again)] == [b"x"]


def test_a_log_that_was_flushed_before_needs_no_flush_of_its_folder_again() -> None:
    disk = new_disk()
    log = open_log(DATA, disk=disk)
    append(log, b"x")
    log.flush()
    again = open_log(DATA, disk=disk, recovery_point=1)
    append(again, b"y")
    disk.calls.clear()
    again.flush()
    assert disk.calls["fsync_directory"] <= 2


def test_a_small_log_is_opened_with_few_calls_after_a_crash() -> None:
    disk = new_disk()
    filled(disk, manager_on(disk))
    disk.restart(power_cut=False)
    manager = manager_on(disk)
    disk.calls.clear()
    logs = manager.load_all(lambda topic: config_of())
    assert len(logs) == LOGS
    assert calls_of(disk) <= LOGS * CALLS_TO_OPEN_AFTER_A_CRASH + 10


def test_and_after_a_clean_end() -> None:
    disk = new_disk()
    manager = manager_on(disk)
    filled(disk, manager)
    manager.close({})
    manager = manager_on(disk)
    disk.calls.clear()
    logs = manager.load_all(lambda topic: config_of())
    assert len(logs) == LOGS
    assert calls_of(disk) <= LOGS * CALLS_TO_OPEN_CLEAN + 10
    assert all(log.log_end_offset == 1 for log in logs.values())


@pytest.mark.parametrize("seed", range(3))
def test_many_logs_end_cleanly_with_one_flush_for_all(seed: int) -> None:
    """And what a clean end promises is there after a power cut."""
    disk = new_disk(seed)
    manager = manager_on(disk)
    filled(disk, manager)
    disk.calls.clear()
    manager.close({})
    assert sum(disk.calls.get(name, 0) for name in ("fsync", "fdatasync", "fsync_directory", "sync_all")) <= 12
    disk.restart(power_cut=True)
    manager = manager_on(disk)
    assert manager.last_shutdown is Shutdown.CLEAN
    for number, log in enumerate(manager.load_all(lambda topic: config_of()).values()):
        assert (log.recovery_point, log.log_end_offset) == (1, 1)
        assert read_all(log)[0].value.startswith(b"value "), number


def test_an_end_whose_flush_fails_is_not_a_clean_one() -> None:
    disk = new_disk()
    manager = manager_on(disk)
    manager.load_all(lambda topic: config_of())
    filled(disk, manager)
    disk.fail("sync_all", errno.EIO)
    manager.close({})
    manager = manager_on(disk)
    assert manager.last_shutdown is Shutdown.SAME_BOOT
    assert {log.recovery_point for log in manager.load_all(lambda topic: config_of()).values()} == {0}


def test_many_logs_share_few_descriptors() -> None:
    disk = new_disk()
    manager = manager_on(disk)
    filled(disk, manager)
    for _ in range(3):
        for number, log in enumerate(manager.logs.values()):
            append(log, b"more")
            assert read_all(log)[0].value == b"value %d" % number
    disk.restart(power_cut=False)
    for log in manager_on(disk).load_all(lambda topic: config_of()).values():
        assert log.log_end_offset == 4
    assert disk.max_open <= OPEN_MAX + 5


def test_checkpoints_that_say_nothing_new_are_not_written_again() -> None:
    disk = new_disk()
    manager = manager_on(disk)
    filled(disk, manager, 3)
    marks = dict.fromkeys(manager.logs, 1)
    manager.checkpoint(marks)()
    steps = disk.steps
    manager.checkpoint(dict(marks))()
    assert disk.steps == steps
    marks[TopicPartition("t", 1)] = 0
    manager.checkpoint(marks)()
    assert disk.steps > steps
    disk.restart(power_cut=True)
    assert manager_on(disk).directories[0].high_watermarks == marks


def test_logs_that_nobody_has_written_to_end_without_a_call_each_and_as_cleanly() -> None:
    disk = new_disk()
    manager = manager_on(disk)
    filled(disk, manager)
    manager.close({})
    manager = manager_on(disk)
    manager.load_all(lambda topic: config_of())
    written = manager.logs[TopicPartition("t", 7)]
    append(written, b"one more")
    disk.calls.clear()
    manager.close({})
    assert calls_of(disk) < LOGS
    disk.restart(power_cut=True)
    manager = manager_on(disk)
    assert manager.last_shutdown is Shutdown.CLEAN
    for at, log in manager.load_all(lambda topic: config_of()).items():
        assert log.recovery_point == log.log_end_offset == (2 if at.partition == 7 else 1)
        assert len(read_all(log)) == log.log_end_offset
