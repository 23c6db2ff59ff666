"""Which segments retention lets go, and what goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.log.errors import OffsetOutOfRange
from appliance.log.open_files import Reaper
from appliance.log.retention import expired_end
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, append, config_of, fill, open_log, read_all

DATA = Path("/data")
FOREVER = {"retention_ms": -1, "retention_bytes": -1}


@dataclass
class Piece:
    base_offset: int
    next_offset: int
    size_bytes: int = 100
    max_timestamp: int = 1_000


PIECES = [Piece(0, 10), Piece(10, 20, max_timestamp=3_000), Piece(20, 30, max_timestamp=2_000), Piece(30, 40)]


def end_of(pieces: list[Piece], *, ms: int = -1, size: int = -1, now: int = 10_000, limit: int = 100) -> int:
    return expired_end(pieces, retention_ms=ms, retention_bytes=size, now_ms=now, limit=limit)


def test_without_bounds_nothing_goes() -> None:
    assert end_of(PIECES) == 0


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    assert end_of(PIECES, ms=9_000) == 0
    assert end_of(PIECES, ms=8_999) == 10


def test_a_younger_segment_keeps_the_older_ones_behind_it() -> None:
    assert end_of(PIECES, ms=7_500) == 10
    assert end_of(PIECES, ms=6_999) == 40


def test_segments_go_by_size_while_enough_is_left() -> None:
    assert [end_of(PIECES, size=size) for size in (400, 301, 300, 201, 200, 0)] == [0, 0, 10, 10, 20, 40]


def test_time_goes_on_where_size_ends() -> None:
    pieces = [Piece(0, 10, max_timestamp=9_999), Piece(10, 20), Piece(20, 30, max_timestamp=9_999)]
    assert end_of(pieces, ms=5_000, size=200) == 20


def test_records_without_timestamps_do_not_get_old() -> None:
    assert end_of([Piece(0, 10, max_timestamp=-1)], ms=1) == 0


def test_nothing_above_the_high_watermark_goes() -> None:
    assert end_of(PIECES, size=0, limit=29) == 20


def test_an_empty_active_segment_stays() -> None:
    assert end_of([Piece(0, 10), Piece(10, 10, size_bytes=0)], ms=1) == 10


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    return disk


def test_expired_segments_go_and_their_files_follow_after_the_delay(disk: FaultDisk) -> None:
    clock, reaper = TestClock(), Reaper(disk)
    config = config_of(segment_bytes=500, **FOREVER | {"retention_ms": 10_000})
    log = open_log(DATA, config, disk=disk, clock=clock, reaper=reaper)
    old = fill(log, 12)
    clock.time_ms = START_MS + 20_000
    young = fill(log, 6, now_ms=clock.time_ms)
    log.flush()
    end = log.retention_deletable(clock.time_ms)
    assert 0 < end <= len(old)
    gone = [segment for segment in log.segments if segment.next_offset <= end]
    assert log.delete_local_segments_below(end) == len(gone)
    assert (log.log_start_offset, log.local_log_start_offset) == (end, end)
    assert [record.value for record in read_all(log)] == [*old, *young][end:]
    names = disk.listdir(log.directory)
    assert f"{0:020d}.log" not in names and f"{0:020d}.log.deleted" in names
    assert reaper.due(clock.time_ms + 59_999) == []
    reaper.unlink(reaper.due(clock.time_ms + 60_000))
    assert not [name for name in disk.listdir(log.directory) if name.endswith(".deleted")]


def test_when_all_is_expired_the_active_segment_is_rolled_and_goes_too(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(**FOREVER | {"retention_ms": 1_000}), disk=disk)
    fill(log, 5)
    end = log.retention_deletable(START_MS + 5_000)
    assert end == 5
    assert log.delete_local_segments_below(end) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes, len(log.segments)) == (5, 5, 0, 1)
    append(log, b"next")
    assert [record.offset for record in read_all(log)] == [5]


def test_a_topic_that_is_only_compacted_loses_nothing_by_retention(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(cleanup_policy=("compact",), retention_ms=1, retention_bytes=0), disk=disk)
    fill(log, 5)
    assert log.retention_deletable(START_MS * 2) == 0


def test_segments_below_the_log_start_may_go(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500, **FOREVER), disk=disk)
    fill(log, 12)
    second = log.segments[1]
    log.raise_log_start(second.next_offset - 1)
    assert log.retention_deletable(START_MS) == second.base_offset
    log.raise_log_start(second.next_offset)
    assert log.retention_deletable(START_MS) == second.next_offset


def test_the_log_start_only_rises_and_never_above_the_end(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    fill(log, 5)
    log.raise_log_start(3)
    log.raise_log_start(2)
    assert log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRange):
        log.raise_log_start(6)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100, 5)


def test_a_tiered_log_keeps_its_start_when_local_copies_go(disk: FaultDisk) -> None:
    config = config_of(
        segment_bytes=500, remote_storage_enable=True, local_retention_bytes=0, local_retention_ms=-1, **FOREVER
    )
    log = open_log(DATA, config, disk=disk)
    fill(log, 12)
    tiered_end = log.segments[2].next_offset
    assert log.local_retention_deletable(START_MS, tiered_end) == tiered_end
    log.delete_local_segments_below(tiered_end)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, tiered_end)
    log.close()
    again = open_log(DATA, config, disk=disk, clean=True, recovery_point=log.recovery_point, log_start_offset=0)
    assert (again.log_start_offset, again.local_log_start_offset) == (0, tiered_end)


def test_leader_epochs_below_the_log_start_are_forgotten(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500, **FOREVER), disk=disk)
    fill(log, 4, leader_epoch=1)
    fill(log, 8, leader_epoch=2)
    log.raise_log_start(6)
    assert log.leader_epochs.entries == [(2, 6)]
