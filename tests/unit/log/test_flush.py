"""Flushes: what is durable when, and who does the slow part."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from appliance.log.errors import LogWriteFailed
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, append, config_of, fill, open_log, read_all

DATA = Path("/data")


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    disk.fsync_directory(Path("/"))
    return disk


def test_what_was_flushed_survives_a_power_cut(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    values = fill(log, 20, leader_epoch=3)
    log.flush()
    assert log.recovery_point == 20
    disk.restart(power_cut=True)
    again = open_log(DATA, log.config, disk=disk, recovery_point=20)
    assert [record.value for record in read_all(again)] == values
    assert again.leader_epochs.entries == [(3, 0)]


def test_nothing_new_means_no_flush(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"x")
    log.flush()
    steps = disk.steps
    assert log.prepare_flush() is None
    log.flush()
    assert disk.steps == steps


def test_closed_segments_can_be_flushed_without_the_active_one(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    fill(log, 10)
    assert log.flush_due(START_MS)
    flush = log.prepare_flush(include_active=False)
    assert flush is not None
    flush.run()
    log.flushed(flush)
    assert log.recovery_point == log.active_segment.base_offset
    assert not log.flush_due(START_MS)
    assert disk.exists(log.directory / f"{log.active_segment.base_offset:020d}.snapshot")


def test_a_flush_is_due_by_messages_and_by_time(disk: FaultDisk) -> None:
    clock = TestClock()
    log = open_log(DATA, config_of(flush_messages=3, flush_ms=1_000), disk=disk, clock=clock)
    assert not log.flush_due(START_MS + 10**6)
    fill(log, 2)
    assert not log.flush_due(START_MS + 999)
    assert log.flush_due(START_MS + 1_000)
    fill(log, 1)
    assert log.flush_due(START_MS)
    log.flush()
    assert not log.flush_due(START_MS)


def test_a_helper_thread_can_flush_while_the_log_goes_on(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    fill(log, 4)
    flush = log.prepare_flush()
    assert flush is not None
    fill(log, 10)
    log.delete_local_segments_below(4)
    flush.run()
    log.flushed(flush)
    assert log.recovery_point == 4
    assert all(segment.references == 0 for segment in log.segments)


def test_segments_may_go_in_the_middle_of_a_flush_that_writes_the_same_snapshot(
    disk: FaultDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    append(log, b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    fill(log, 10)
    kept = log.segments[1].base_offset
    flush = log.prepare_flush()
    assert flush is not None and flush.snapshots[kept]
    rename = disk.rename

    def renamed(source: Path, target: Path) -> None:
        # The loop's turn comes between the helper thread's writing and renaming.
        monkeypatch.setattr(disk, "rename", rename)
        log.delete_local_segments_below(kept)
        rename(source, target)

    monkeypatch.setattr(disk, "rename", renamed)
    flush.run()
    log.flushed(flush)
    assert log.segments[0].base_offset == kept
    assert log.producer_snapshot_at(kept)


def test_after_a_failed_fsync_nothing_is_believed_and_nothing_is_written(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"x")
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(LogWriteFailed) as failure:
        log.flush()
    assert not failure.value.disk_full
    assert log.recovery_point == 0
    with pytest.raises(LogWriteFailed):
        append(log, b"y")
    assert [record.value for record in read_all(log)] == [b"x"]
    log.close()


def test_a_flush_that_finds_no_space_for_an_index_can_be_tried_again(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    fill(log, 10)
    disk.fail("pwrite", errno.ENOSPC)
    with pytest.raises(LogWriteFailed) as failure:
        log.flush()
    assert failure.value.disk_full
    log.flush()
    assert log.recovery_point == 10
    append(log, b"goes on")


def test_a_snapshot_exists_at_each_roll_in_memory_or_on_disk(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    for number in range(10):
        append(log, bytes(60), producer_id=1, producer_epoch=0, base_sequence=number)
    bases = [segment.base_offset for segment in log.segments[1:]]
    before = [log.producer_snapshot_at(base) for base in bases]
    assert all(before) and len(set(before)) == len(bases)
    log.flush()
    assert [log.producer_snapshot_at(base) for base in bases] == before
    assert log.producer_snapshot_at(10) is not None
    assert log.producer_snapshot_at(5555) is None
