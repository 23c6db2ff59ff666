"""Staging, writing and rolling, and what a failed write leaves behind."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from appliance.base.errors import InvariantBroken
from appliance.log.errors import LogWriteFailed, OffsetOutOfRange
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_state import Duplicate
from appliance.log.scan import RELATIVE_OFFSET_MAX
from appliance.records.batch import check_batch, parse_header, stamp
from appliance.records.control import ABORT, build_marker
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, append, batch_of, config_of, fill, open_log, read_all, stage

DATA = Path("/data")


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    return disk


def values_in(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


def test_a_staged_batch_gets_offset_and_epoch_in_place_and_no_system_call(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"a", b"b")
    before = dict(disk.calls)
    batch = batch_of(b"c", b"d", b"e")
    assert stage(log, batch, leader_epoch=7) == 2
    assert disk.calls == before
    header = check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 7)
    assert (log.log_end_offset, log.staged_end_offset, log.has_staged) == (2, 5, True)


def test_many_staged_batches_are_one_write(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1 << 20), disk=disk)
    append(log, b"first")
    before = disk.calls["writev"]
    for number in range(50):
        stage(log, batch_of(b"%d" % number))
    log.write_staged()
    assert disk.calls["writev"] == before + 1
    assert not log.has_staged
    assert values_in(log) == [b"first", *(b"%d" % number for number in range(50))]


def test_more_pieces_than_one_call_takes_are_written_too(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1 << 20), disk=disk)
    for number in range(2_500):
        stage(log, batch_of(b"%d" % number))
    log.write_staged()
    assert [record.offset for record in read_all(log, max_bytes=50_000)] == list(range(2_500))


def test_a_segment_is_rolled_before_it_would_be_too_large(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1_000), disk=disk)
    values = fill(log, 30, size=100)
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 1_000 for segment in log.segments)
    assert [s.next_offset for s in log.segments[:-1]] == [s.base_offset for s in log.segments[1:]]
    assert values_in(log) == values


def test_segments_may_be_rolled_within_one_group_of_staged_batches(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    values = [b"%03d" % number * 20 for number in range(20)]
    for number, value in enumerate(values):
        stage(log, batch_of(value, timestamp=START_MS + number))
    assert len(log.segments) == 1
    log.write_staged()
    assert len(log.segments) > 5
    assert values_in(log) == values
    assert [log.offset_for_timestamp(START_MS + n) for n in range(20)] == [(n, START_MS + n) for n in range(20)]


def test_a_batch_larger_than_a_segment_has_one_for_itself(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    append(log, b"small")
    append(log, bytes(2_000))
    append(log, b"small again")
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_a_segment_is_rolled_when_records_are_segment_ms_apart(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_ms=1_000), disk=disk)
    append(log, b"a", timestamp=START_MS)
    append(log, b"b", timestamp=START_MS + 1_000)
    assert len(log.segments) == 1
    append(log, b"c", timestamp=START_MS + 1_001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_makes_a_segment_shorter_and_never_longer(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1 << 20, segment_ms=100_000, segment_jitter_ms=50_000), disk=disk)
    for seconds in range(1_000):
        append(log, b"x", timestamp=START_MS + seconds * 1_000)
    spans = [segment.next_offset - segment.base_offset for segment in log.segments[:-1]]
    assert all(50 <= span <= 101 for span in spans)
    assert len(set(spans)) > 1


def test_a_full_index_rolls_the_segment(disk: FaultDisk) -> None:
    # 48 bytes of index are three entries, the last one being kept for the roll.
    log = open_log(DATA, config_of(segment_bytes=1 << 20, segment_index_bytes=48, index_interval_bytes=100), disk=disk)
    fill(log, 30, size=100)
    assert len(log.segments) > 5
    assert all(len(segment.index) <= 3 for segment in log.segments)


def test_offsets_that_no_index_entry_can_hold_roll_the_segment(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"first")
    far = batch_of(b"far")
    stamp(far, RELATIVE_OFFSET_MAX + 1, 1)
    log.stage_replicated(memoryview(far), check_batch(far), START_MS)
    log.write_staged()
    assert [segment.base_offset for segment in log.segments] == [0, RELATIVE_OFFSET_MAX + 1]
    assert [record.offset for record in read_all(log)] == [0, RELATIVE_OFFSET_MAX + 1]


def test_replicated_batches_keep_their_offsets_and_epochs(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    for offset, epoch in ((10, 3), (11, 3), (20, 5)):
        batch = batch_of(b"x")
        stamp(batch, offset, epoch)
        assert log.stage_replicated(memoryview(batch), check_batch(batch), START_MS) == offset
    log.write_staged()
    assert [record.offset for record in read_all(log)] == [10, 11, 20]
    assert log.leader_epochs.entries == [(3, 10), (5, 20)]
    with pytest.raises(OffsetOutOfRange):
        log.stage_replicated(memoryview(batch), check_batch(batch), START_MS)


def test_leader_epochs_are_noted_as_they_come(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"a", b"b", leader_epoch=0)
    append(log, b"c", leader_epoch=4)
    log.leader_epochs.assign(6, 3)
    append(log, b"d", leader_epoch=6)
    assert log.leader_epochs.entries == [(0, 0), (4, 2), (6, 3)]


def test_an_epoch_that_was_assigned_ahead_survives_a_failed_write(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"a", leader_epoch=1)
    log.leader_epochs.assign(2, 1)
    disk.fail("writev", errno.EIO)
    with pytest.raises(LogWriteFailed):
        append(log, b"b", leader_epoch=2)
    assert log.leader_epochs.entries == [(1, 0), (2, 1)]


def test_a_write_that_was_short_is_finished(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    whole = disk.writev

    def three_bytes(descriptor: int, pieces: list[memoryview]) -> int:
        return whole(descriptor, [b"".join(map(bytes, pieces))[:3]])

    log._writev = three_bytes
    stage(log, batch_of(b"one"))
    stage(log, batch_of(b"two"))
    log.write_staged()
    assert values_in(log) == [b"one", b"two"]


def assert_untouched_by(log: PartitionLog, disk: FaultDisk, error: LogWriteFailed, values: list[bytes]) -> None:
    assert (log.log_end_offset, log.staged_end_offset, log.has_staged) == (len(values), len(values), False)
    assert values_in(log) == values
    last = log.segments[-1]
    assert disk.size(last.open()) == last.size_bytes
    with pytest.raises(FileNotFoundError):
        disk.open(log.directory / f"{len(values) + 5:020d}.log", 0)


def test_a_full_disk_leaves_the_log_as_it_was(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    values = fill(log, 7)
    disk.capacity = sum(len(inode.data) for inode in disk._files()) + 150
    for number in range(3):
        stage(log, batch_of(b"%d" % number * 60))
    with pytest.raises(LogWriteFailed) as failure:
        log.write_staged()
    assert failure.value.disk_full
    assert_untouched_by(log, disk, failure.value, values)
    disk.capacity = 1 << 40
    append(log, b"after")
    assert values_in(log) == [*values, b"after"]


def test_a_failure_behind_a_roll_takes_the_new_segment_back_too(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=500), disk=disk)
    values = fill(log, 2)
    for number in range(10):
        stage(log, batch_of(b"%d" % number * 100))
    disk.failures["writev"] = []
    real, calls = log._writev, []

    def third_call_fails(descriptor: int, pieces: list[memoryview]) -> int:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.EIO, "gone")
        return real(descriptor, pieces)

    log._writev = third_call_fails
    with pytest.raises(LogWriteFailed) as failure:
        log.write_staged()
    assert not failure.value.disk_full
    assert len(log.segments) == 1
    assert_untouched_by(log, disk, failure.value, values)
    assert [name for name in disk.listdir(log.directory) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_what_cannot_be_taken_back_ends_the_log(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"a")
    disk.fail("writev", errno.ENOSPC)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(LogWriteFailed) as failure:
        append(log, b"b")
    assert not failure.value.disk_full
    with pytest.raises(LogWriteFailed):
        append(log, b"c")
    assert values_in(log) == [b"a"]


def test_after_a_failed_write_producers_epochs_and_indexes_know_nothing_of_it(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_bytes=1 << 20, index_interval_bytes=50), disk=disk)
    producer = {"producer_id": 5, "producer_epoch": 0}
    for sequence in range(6):
        append(log, b"x" * 50, base_sequence=sequence, leader_epoch=1, **producer)
    entries, index_size, max_timestamp = log.producer_state.entries, len(log.segments[-1].index), START_MS
    for sequence in range(6, 20):
        stage(log, batch_of(b"y" * 50, timestamp=START_MS + 10**6, base_sequence=sequence, **producer), leader_epoch=2)
    disk.fail("writev", errno.ENOSPC)
    with pytest.raises(LogWriteFailed):
        log.write_staged()
    assert log.producer_state.entries == entries
    assert log.leader_epochs.entries == [(1, 0), (2, 6)] or log.leader_epochs.entries == [(1, 0)]
    assert len(log.segments[-1].index) == index_size
    assert log.segments[-1].max_timestamp == max_timestamp
    assert log.offset_for_timestamp(START_MS + 1) is None
    append(log, b"y", base_sequence=6, **producer)
    assert log.producer_state.check(parse_header(batch_of(b"x" * 50, base_sequence=5, **producer))) == Duplicate(
        5, 5, START_MS
    )


def test_an_aborted_transaction_in_a_failed_write_is_forgotten(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    disk.fail("writev", errno.ENOSPC)
    stage(log, bytearray(build_marker(ABORT, 1, producer_id=5, producer_epoch=0, now_ms=START_MS)))
    with pytest.raises(LogWriteFailed):
        log.write_staged()
    assert log.aborted_transactions(0, 100) == []
    assert log.last_stable_offset(1) == 0


def test_a_roll_on_request_closes_the_active_segment_only_if_it_has_records(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    assert log.roll(START_MS) is None
    append(log, b"a")
    closed = log.roll(START_MS)
    assert closed is not None and (closed.base_offset, closed.next_offset) == (0, 1)
    assert log.roll(START_MS) is None
    assert log.closed_segments() == [closed]
    append(log, b"b")
    assert values_in(log) == [b"a", b"b"]


def test_a_roll_between_stage_and_write_is_our_fault(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    stage(log, batch_of(b"a"))
    for forbidden in (lambda: log.roll(START_MS), lambda: log.truncate_to(0), log.close):
        with pytest.raises(InvariantBroken):
            forbidden()


def test_a_roll_that_the_disk_refuses_changes_nothing(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    append(log, b"a")
    disk.fail("open", errno.ENOSPC)
    with pytest.raises(LogWriteFailed):
        log.roll(START_MS)
    append(log, b"b")
    assert values_in(log) == [b"a", b"b"] and len(log.segments) == 1


def test_a_roll_is_due_by_the_age_of_the_oldest_record(disk: FaultDisk) -> None:
    log = open_log(DATA, config_of(segment_ms=10_000), disk=disk)
    assert not log.roll_due(START_MS + 10**9)
    append(log, b"a", now_ms=START_MS)
    append(log, b"b", now_ms=START_MS + 9_000)
    assert not log.roll_due(START_MS + 9_999)
    assert log.roll_due(START_MS + 10_000)
    log.update_config(config_of(remote_storage_enable=True, tiering_max_lag_ms=3_000))
    assert log.roll_due(START_MS + 3_000) and not log.roll_due(START_MS + 2_999)


def test_index_files_that_cannot_be_written_at_a_roll_are_written_later(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    values = fill(log, 5)
    disk.fail("pwrite", errno.ENOSPC, times=1)
    log.roll(START_MS)
    disk.fail("pwrite", errno.ENOSPC, times=1)
    assert log.closed_segments() == []
    (closed,) = log.closed_segments()
    assert disk.exists(closed.index_path) and disk.exists(closed.time_index_path)
    assert values_in(log) == values


def test_views_of_the_receive_buffer_are_let_go_by_the_write(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    buffer = batch_of(b"a")
    stage(log, buffer)
    with pytest.raises(BufferError):
        buffer.append(0)
    log.write_staged()
    buffer.append(0)
