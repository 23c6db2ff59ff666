"""Slices, batches and offsets by time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.log.errors import OffsetOutOfRange
from appliance.log.open_files import OpenFiles
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import parse_header, split_batches, stamp
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.records.errors import CorruptBatch
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, append, batch_of, config_of, fill, open_log, read_all, stage

DATA = Path("/data")


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    return disk


def offsets_in(data: bytes) -> list[int]:
    return [parse_header(batch).base_offset for batch in split_batches(data)]


def offsets_read(log: PartitionLog, offset: int, max_bytes: int, max_offset: int, **options: bool) -> list[int]:
    piece = log.read(offset, max_bytes, max_offset, **options)
    if piece is None:
        return []
    data = piece.read()
    assert sum(len(batch) for batch in split_batches(data)) == len(data) == piece.length
    return offsets_in(data)


@pytest.fixture
def log(disk: FaultDisk) -> PartitionLog:
    """Twenty batches of three records each, of 125 bytes, in segments of ten."""
    log = open_log(DATA, config_of(segment_bytes=1_300, index_interval_bytes=300), disk=disk)
    for number in range(20):
        append(log, b"%06d" % number * 5, b"b" * 10, b"c" * 3, timestamp=START_MS + number * 10)
    assert {piece.size_bytes for piece in log.segments} == {1_250}
    return log


def test_a_slice_begins_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    for offset in range(60):
        assert offsets_read(log, offset, 1, 60) == [offset - offset % 3]


def test_a_slice_is_as_long_as_the_bytes_allow(log: PartitionLog) -> None:
    assert offsets_read(log, 0, 125 * 4 + 124, 60) == [0, 3, 6, 9]
    assert offsets_read(log, 7, 125 * 2, 60) == [6, 9]


def test_a_slice_ends_at_the_end_of_its_segment(log: PartitionLog) -> None:
    assert offsets_read(log, 24, 10_000, 60) == [24, 27]
    assert offsets_read(log, 30, 10_000, 60) == list(range(30, 60, 3))


def test_a_slice_never_reaches_the_given_end(log: PartitionLog) -> None:
    assert offsets_read(log, 30, 10_000, 39) == [30, 33, 36]
    assert offsets_read(log, 30, 200, 39) == [30]
    assert log.read(39, 10_000, 39) is None


def test_the_first_batch_comes_whole_unless_it_must_not(log: PartitionLog) -> None:
    assert offsets_read(log, 0, 1, 60) == [0]
    assert log.read(0, 124, 60, min_one_batch=False) is None
    assert offsets_read(log, 0, 125, 60, min_one_batch=False) == [0]


def test_at_the_end_there_is_nothing_yet(log: PartitionLog) -> None:
    assert log.read(60, 1000, 60) is None


@pytest.mark.parametrize("offset", [-1, 61, 10**9])
def test_outside_of_the_log_is_out_of_range(log: PartitionLog, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange) as refusal:
        log.read(offset, 1000, 60)
    assert (refusal.value.start, refusal.value.end) == (0, 60)


def test_a_reader_at_the_end_needs_no_read_of_the_file(disk: FaultDisk) -> None:
    log = open_log(DATA / "tail", config_of(segment_bytes=1 << 20), disk=disk)
    offset = 0
    for number in range(50):
        append(log, b"%d" % number * 20)
        before = dict(disk.calls)
        piece = log.read(offset, 1 << 20, log.log_end_offset)
        assert piece is not None and piece.length == len(batch_of(b"%d" % number * 20))
        assert disk.calls == before
        offset = log.log_end_offset


def test_offsets_that_compaction_removed_are_passed_over(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=400, cleanup_policy=("compact",)), disk=disk)
    for offset in (0, 5, 6, 40, 41, 90):
        batch = batch_of(b"x" * 60)
        stamp(batch, offset, 1)
        log.stage_replicated(memoryview(batch), parse_header(batch), START_MS)
        log.write_staged()
    assert len(log.segments) == 2
    assert offsets_read(log, 1, 1, 91) == [5]
    assert offsets_read(log, 7, 1, 91) == [40]
    assert offsets_read(log, 42, 1, 91) == [90]
    log.roll(START_MS)
    assert log.read(91, 1, 91) is None


def test_batches_are_iterated_from_the_one_that_holds_the_offset(log: PartitionLog) -> None:
    assert [parse_header(batch).base_offset for batch in log.batches(25)] == list(range(24, 60, 3))
    assert [parse_header(batch).base_offset for batch in log.batches(25, 33)] == [24, 27, 30]
    with pytest.raises(OffsetOutOfRange):
        log.batches(61)


def test_batches_see_damage_where_slices_do_not(log: PartitionLog, disk: FaultDisk) -> None:
    disk.names[log.segments[0].path].data[125 * 5 + 100] ^= 1
    assert offsets_read(log, 15, 125, 60) == [15]
    with pytest.raises(CorruptBatch, match="crc of the batch at offset 15"):
        list(log.batches(0))


def test_a_damaged_header_is_corrupt_for_slices_too_and_what_lies_behind_the_next_entry_is_not(
    log: PartitionLog, disk: FaultDisk
) -> None:
    data = disk.names[log.segments[0].path].data
    data[125 * 4 : 125 * 4 + 60] = bytes(60)
    log = open_log(DATA, log.config, disk=disk, recovery_point=60)
    assert offsets_read(log, 0, 125, 60) == [0]
    with pytest.raises(CorruptBatch):
        log.read(14, 125, 60)
    assert offsets_read(log, 28, 125, 60) == [27]
    assert offsets_read(log, 30, 125, 60) == [30]


def test_a_time_finds_the_first_record_that_is_not_older(log: PartitionLog) -> None:
    for number in range(20):
        assert log.offset_for_timestamp(START_MS + number * 10) == (number * 3, START_MS + number * 10)
        assert log.offset_for_timestamp(START_MS + number * 10 + 2) == (number * 3 + 2, START_MS + number * 10 + 2)
    assert log.offset_for_timestamp(0) == (0, START_MS)
    assert log.offset_for_timestamp(START_MS + 193) is None


def test_a_time_is_looked_for_within_the_visible_log_only(log: PartitionLog) -> None:
    assert log.offset_for_timestamp(START_MS + 100, end_offset=30) is None
    assert log.offset_for_timestamp(START_MS + 100, end_offset=31) == (30, START_MS + 100)
    log.raise_log_start(31)
    assert log.offset_for_timestamp(0) == (31, START_MS + 101)


def test_times_need_not_be_in_order(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=600, index_interval_bytes=100), disk=disk)
    times = [50, 10, 90, 20, 95, 5, 200, 30, 60, 300]
    for time in times:
        append(log, b"x" * 40, timestamp=time)
    for wanted in range(302):
        expected = next(((offset, time) for offset, time in enumerate(times) if time >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    assert log.offset_of_max_timestamp() == (9, 300)
    assert log.offset_of_max_timestamp(end_offset=9) == (6, 200)


def test_an_empty_log_has_no_times(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    assert log.offset_for_timestamp(0) is None and log.offset_of_max_timestamp() is None


def test_transactions_hold_the_last_stable_offset_back_and_aborted_ones_are_listed(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=400), disk=disk)

    def write(producer: int, sequence: int) -> None:
        append(log, b"x" * 60, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)

    def finish(producer: int, kind: int) -> None:
        marker = bytearray(build_marker(kind, 1, producer_id=producer, producer_epoch=0, now_ms=START_MS))
        stage(log, marker)
        log.write_staged()

    write(1, 0)  # 0
    write(2, 0)  # 1
    write(1, 1)  # 2
    assert log.last_stable_offset(3) == 0
    finish(2, ABORT)  # 3
    write(2, 1)  # 4
    finish(1, COMMIT)  # 5
    assert log.last_stable_offset(6) == 4
    finish(2, ABORT)  # 6
    fill(log, 3)  # 7, 8, 9
    assert log.last_stable_offset(10) == 10
    assert len(log.segments) > 3
    aborted = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in log.aborted_transactions(0, 10)]
    assert aborted == [(2, 1, 3), (2, 4, 6)]
    assert [entry.first_offset for entry in log.aborted_transactions(0, 4)] == [1]
    assert [entry.first_offset for entry in log.aborted_transactions(4, 5)] == [4]
    assert log.aborted_transactions(7, 10) == []
    log.close(clean=False)
    again = open_log(DATA, log.config, disk=disk)
    assert again.aborted_transactions(0, 10) == log.aborted_transactions(0, 10)
    assert again.last_stable_offset(10) == 10


def test_a_retained_slice_survives_retention_and_the_bound_on_descriptors(tmp_path: Path) -> None:
    disk = SystemDisk()
    log = open_log(tmp_path, config_of(segment_bytes=400), disk=disk, files=OpenFiles(disk, max_open=2))
    fill(log, 20, size=100)
    piece = log.read(0, 10_000, 20)
    assert piece is not None
    piece.retain()
    expected = piece.read()
    descriptor = piece.file_descriptor
    log.delete_local_segments_below(15)
    log._reaper.unlink(log._reaper.due(10**15))
    read_all(log)
    assert not piece.segment.path.exists()
    assert os.pread(descriptor, piece.length, piece.position) == expected
    piece.release()
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_no_more_descriptors_are_open_than_allowed(disk: FaultDisk) -> None:
    files = OpenFiles(disk, max_open=3)
    log = open_log(DATA, config_of(segment_bytes=300), disk=disk, files=files)
    values = fill(log, 30, size=100)
    assert len(log.segments) > 10
    assert [record.value for record in read_all(log)] == values
    assert [record.value for record in read_all(log)] == values
    assert disk.max_open <= 3 + 1  # and an index file for a moment
    assert files.open_count <= 3
    pieces = [log.read(offset, 1, 30) for offset in range(0, 30, 2)]
    for piece in pieces:
        assert piece is not None
        piece.retain()
    assert files.open_count > 3
    for piece in pieces:
        assert piece is not None
        piece.release()
    append(log, b"x" * 300)
    assert files.open_count <= 3


def test_loaded_indexes_are_bounded(disk: FaultDisk) -> None:
    files = OpenFiles(disk, max_index_bytes=64)
    log = open_log(DATA, config_of(segment_bytes=1_000, index_interval_bytes=100), disk=disk, files=files)
    values = fill(log, 60, size=100)
    assert [record.value for record in read_all(log)] == values
    loaded = [segment for segment in log.segments[:-1] if segment._index is not None]
    assert sum(segment.counted_index_bytes or 0 for segment in loaded) <= 64
    assert [record.value for record in read_all(log)] == values


def test_a_long_slice_ends_where_the_index_knows_a_batch_and_the_reader_goes_on_there(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1 << 21, index_interval_bytes=4_096), disk=disk)
    for number in range(900):
        append(log, b"%06d" % number * 160, timestamp=START_MS + number)
    size, at, found = log.segments[0].size_bytes // 900, 0, 0
    while at < 900:
        offsets = offsets_read(log, at, 300_000, 900)
        assert offsets == list(range(at, at + len(offsets)))
        at += len(offsets)
        if at < 900:
            assert 300_000 - 4_096 - 2 * size < len(offsets) * size <= 300_000
            assert log.segments[0].boundaries[at] == at * size
            found += 1
    assert found >= 2
