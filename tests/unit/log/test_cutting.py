"""Logs that are cut at the end, as followers do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.log.partition_log import PartitionLog
from appliance.records.control import ABORT, build_marker
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, append, batch_of, config_of, fill, open_log, read_all, stage

DATA = Path("/data")


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    return disk


def long_log(disk: FaultDisk) -> PartitionLog:
    log = open_log(DATA, config_of(segment_bytes=700), disk=disk)
    for number in range(20):
        append(log, b"%03d" % number * 10, b"second", leader_epoch=number // 5, timestamp=START_MS + number)
    return log


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("offset", range(0, 41, 2))
def test_a_cut_log_is_as_if_the_rest_had_never_been(disk: FaultDisk, offset: int, flushed: bool) -> None:
    log = long_log(disk)
    if flushed:
        log.flush()
    expected = read_all(log)[:offset]
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    assert read_all(log) == expected
    assert log.leader_epochs.entries == [(epoch, epoch * 10) for epoch in range(4) if epoch * 10 < offset]
    assert log.recovery_point <= offset
    last = max((record.timestamp for record in expected), default=-1)
    assert max(segment.max_timestamp for segment in log.segments) == last
    if expected:
        assert log.offset_for_timestamp(last) == (expected[-1].offset, last)
    assert log.offset_for_timestamp(last + 1) is None
    append(log, b"new", leader_epoch=9)
    assert [record.value for record in read_all(log)[-1:]] == [b"new"]
    log.close(clean=False)
    again = open_log(DATA, log.config, disk=disk, recovery_point=log.recovery_point)
    assert read_all(again) == [*expected, *read_all(again, offset)]
    assert again.log_end_offset == offset + 1


@pytest.mark.parametrize("offset", [1, 7, 19, 33, 39])
def test_a_cut_within_a_batch_takes_the_whole_batch(disk: FaultDisk, offset: int) -> None:
    log = long_log(disk)
    log.truncate_to(offset)
    assert log.log_end_offset == offset - 1
    assert [record.offset for record in read_all(log)] == list(range(offset - 1))


def test_a_cut_at_or_above_the_end_is_none(disk: FaultDisk) -> None:
    log = long_log(disk)
    log.truncate_to(40)
    log.truncate_to(10**6)
    assert log.log_end_offset == 40 and len(read_all(log)) == 40


def test_producers_are_as_they_were_at_the_cut(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=700), disk=disk)
    states = []
    for number in range(20):
        states.append({key: (entry.last_sequence, entry.epoch) for key, entry in log.producer_state.entries.items()})
        append(log, b"x" * 40, producer_id=number % 3, producer_epoch=1, base_sequence=number // 3)
        if number == 11:
            log.flush()
    for offset in (19, 13, 12, 11, 4, 0):
        log.truncate_to(offset)
        entries = log.producer_state.entries
        assert {key: (entry.last_sequence, entry.epoch) for key, entry in entries.items()} == states[offset]


def test_an_aborted_transaction_beyond_the_cut_is_open_again(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    stage(log, bytearray(build_marker(ABORT, 1, producer_id=5, producer_epoch=0, now_ms=START_MS)))
    log.write_staged()
    log.flush()
    log.truncate_to(1)
    assert log.aborted_transactions(0, 10) == []
    assert log.last_stable_offset(1) == 0


def test_a_flush_from_before_a_cut_says_nothing_of_what_follows(disk: FaultDisk) -> None:
    log = long_log(disk)
    flush = log.prepare_flush()
    assert flush is not None
    log.truncate_to(10)
    append(log, b"other", leader_epoch=8)
    flush.run()
    log.flushed(flush)
    assert log.recovery_point <= 10


def test_a_log_may_begin_anew_anywhere(disk: FaultDisk) -> None:
    log = long_log(disk)
    log.flush()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (100, 100, 100)
    assert (log.producer_state.entries, log.leader_epochs.entries, log.size_bytes) == ({}, [], 0)
    append(log, b"a", leader_epoch=5)
    assert [record.offset for record in read_all(log)] == [100]
    log.close()
    again = open_log(DATA, log.config, disk=disk, clean=True, recovery_point=log.recovery_point)
    assert [record.offset for record in read_all(again)] == [100]
    assert again.leader_epochs.entries == [(5, 100)]


def test_a_log_that_begins_at_the_tiers_end_keeps_the_tiers_start_epochs_and_producers(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(remote_storage_enable=True), disk=disk)
    append(log, b"x", producer_id=5, producer_epoch=2, base_sequence=7)
    producers = log.producer_snapshot_at(1)
    assert producers is not None
    log.truncate_fully_and_start_at(50, 10, epochs=[(0, 10), (3, 40)], producers=producers)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 50, 50)
    stage(log, batch_of(b"y", producer_id=5, producer_epoch=2, base_sequence=8), leader_epoch=6)
    log.write_staged()
    log.flush()
    log.close(clean=False)
    again = open_log(DATA, log.config, disk=disk, recovery_point=log.recovery_point, log_start_offset=10)
    assert again.leader_epochs.entries == [(0, 10), (3, 40), (6, 50)]
    assert again.producer_state.entries[5].last_sequence == 8


def test_a_short_log_of_old_values_is_cut_in_its_first_segment(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    values = fill(log, 3)
    log.truncate_to(2)
    assert [record.value for record in read_all(log)] == values[:2]


@pytest.mark.parametrize("offset", [0, 1, 13, 20, 27, 38])
def test_slices_that_are_on_their_way_keep_their_bytes_when_the_log_is_cut(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path, config_of(segment_bytes=700))
    for number in range(20):
        append(log, b"%03d" % number * 10, b"second", leader_epoch=number // 5, timestamp=START_MS + number)
    slices, at = [], 0
    while at < 40:
        piece = log.read(at, 10_000, 40)
        assert piece is not None
        slices.append((piece.retain(), os.pread(piece.file_descriptor, piece.length, piece.position)))
        at = piece.segment.next_offset
    kept = read_all(log)[: offset // 2 * 2]
    log.truncate_to(offset)
    for _ in range(30):
        append(log, b"quite another record", leader_epoch=9)
    for piece, before in slices:
        assert os.pread(piece.file_descriptor, piece.length, piece.position) == before
        piece.release()
    assert all(piece.segment.descriptor < 0 for piece, _ in slices if piece.segment not in log.segments)
    assert read_all(log)[: len(kept)] == kept
    assert [record.value for record in read_all(log)[len(kept) :]] == [b"quite another record"] * 30
    assert not list(log.directory.glob("*.tmp"))
    log.flush()
    recovery_point = log.recovery_point
    expected = read_all(log)
    log.close(clean=False)
    again = open_log(tmp_path, log.config, recovery_point=recovery_point)
    assert read_all(again) == expected


def test_a_cut_that_cannot_copy_what_is_being_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    values = fill(log, 4)
    piece = log.read(0, 10_000, 4)
    assert piece is not None
    piece.retain()

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(SystemDisk, "fsync", refuse)
    with pytest.raises(OSError, match="no"):
        log.truncate_to(2)
    monkeypatch.undo()
    assert [record.value for record in read_all(log)] == values
    log.truncate_to(2)
    piece.release()
    assert [record.value for record in read_all(log)] == values[:2]


def test_after_a_crash_no_epoch_is_known_of_what_was_cut(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(), disk=disk)
    append(log, b"stays", leader_epoch=1)
    append(log, b"goes", leader_epoch=2)
    append(log, b"goes", leader_epoch=3)
    log.flush()
    log.truncate_to(1)
    append(log, b"comes", leader_epoch=3)
    append(log, b"comes", leader_epoch=3)
    assert log.leader_epochs.entries == [(1, 0), (3, 1)]
    again = open_log(DATA, log.config, disk=disk, recovery_point=log.recovery_point)
    assert again.leader_epochs.entries == [(1, 0), (3, 1)]


def test_a_cut_that_takes_the_batch_with_the_log_start_takes_the_log_start_back(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(), disk=disk)
    append(log, b"0", b"1")
    append(log, b"2", b"3", b"4")
    log.raise_log_start(3)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert append(log, b"2") == 2
