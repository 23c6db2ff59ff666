"""What a start makes of what it finds."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.base.ids import ZERO_UUID
from appliance.log.checkpoints import CorruptCheckpoint, write_partition_metadata
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_snapshot import snapshot_from_bytes
from appliance.log.producer_state import Duplicate
from appliance.records.batch import parse_header, split_batches
from appliance.records.control import ABORT, build_marker
from appliance.records.errors import CorruptBatch
from appliance.records.reader import Record, read_records
from tests.support.fault_disk import FaultDisk
from tests.support.logs import START_MS, TestClock, append, batch_of, config_of, fill, open_log, read_all, stage

DATA = Path("/data")
CONFIG = config_of(segment_bytes=1_000)
BATCH_BYTES = len(batch_of(bytes(100)))


@pytest.fixture
def disk() -> FaultDisk:
    disk = FaultDisk()
    disk.mkdir(DATA)
    return disk


def filled(disk: FaultDisk, count: int = 20) -> PartitionLog:
    log = open_log(DATA, CONFIG, disk=disk)
    fill(log, count)
    return log


def reopened(disk: FaultDisk, recovery_point: int = 0, *, clean: bool = False) -> PartitionLog:
    return open_log(DATA, CONFIG, disk=disk, recovery_point=recovery_point, clean=clean)


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_all(log)]


def read_first(log: PartitionLog, offset: int) -> list[Record]:
    """What one fetch brings."""
    piece = log.read(offset, 10_000, log.log_end_offset)
    assert piece is not None
    return [record for batch in split_batches(piece.read()) for record in read_records(batch)]


def content(disk: FaultDisk, path: Path) -> bytearray:
    return disk.names[path].data


def test_a_new_log_is_empty_and_knows_its_topic(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 0, 0)
    assert disk.listdir(log.directory) == [f"{0:020d}.log", "partition.metadata"]


def test_a_log_may_begin_at_a_log_start_that_was_checkpointed(disk: FaultDisk) -> None:
    log = open_log(DATA, disk=disk, log_start_offset=70)
    assert append(log, b"x") == 70


def test_a_folder_of_another_topic_id_is_refused(disk: FaultDisk) -> None:
    log = filled(disk)
    write_partition_metadata(disk, log.directory / "partition.metadata", ZERO_UUID)
    with pytest.raises(CorruptCheckpoint):
        reopened(disk)


def test_a_clean_close_leaves_nothing_to_check(disk: FaultDisk) -> None:
    log = filled(disk)
    log.close()
    before = disk.calls.get("pread", 0)
    again = reopened(disk, log.recovery_point, clean=True)
    assert again.log_end_offset == again.recovery_point == 20
    # Metadata, epochs, snapshot and indexes, and the way from the last index entry to the end: no whole segments.
    assert disk.calls["pread"] - before < 20
    assert offsets(again) == list(range(20))
    append(again, b"on and on")
    assert offsets(again) == list(range(21))


@pytest.mark.parametrize("recovery_point", [0, 3, 8, 19, 20, 10**6])
def test_a_crash_of_the_process_loses_nothing(disk: FaultDisk, recovery_point: int) -> None:
    log = filled(disk)
    again = reopened(disk, recovery_point)
    assert offsets(again) == list(range(20))
    assert again.recovery_point == min(recovery_point, 20)
    assert [segment.base_offset for segment in again.segments] == [segment.base_offset for segment in log.segments]
    assert again.offset_for_timestamp(START_MS) == (0, START_MS)
    append(again, b"on and on")
    assert offsets(again) == list(range(21))


@pytest.mark.parametrize("torn", [1, 11, 60, BATCH_BYTES - 1])
def test_a_torn_tail_is_cut(disk: FaultDisk, torn: int) -> None:
    log = filled(disk)
    content(disk, log.segments[-1].path).extend(batch_of(bytes(100))[:torn])
    again = reopened(disk)
    assert offsets(again) == list(range(20))
    assert len(content(disk, log.segments[-1].path)) == again.segments[-1].size_bytes == log.segments[-1].size_bytes
    append(again, b"more")
    assert offsets(reopened(disk)) == list(range(21))


def test_zeros_behind_the_end_are_cut(disk: FaultDisk) -> None:
    log = filled(disk)
    content(disk, log.segments[-1].path).extend(bytes(4096))
    assert offsets(reopened(disk)) == list(range(20))


def test_the_log_ends_before_the_first_bad_batch_above_the_recovery_point(disk: FaultDisk) -> None:
    log = filled(disk)
    second = log.segments[1]
    content(disk, second.path)[BATCH_BYTES + 80] ^= 1
    again = reopened(disk, recovery_point=second.base_offset)
    assert again.log_end_offset == second.base_offset + 1
    assert offsets(again) == list(range(second.base_offset + 1))
    assert len(again.segments) == 2
    assert not [name for name in disk.listdir(log.directory) if name.startswith(f"{log.segments[2].base_offset:020d}")]
    append(again, b"more")
    assert offsets(reopened(disk)) == list(range(second.base_offset + 2))


def test_a_bad_batch_below_the_recovery_point_is_never_cut(disk: FaultDisk, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(disk)
    second = log.segments[1]
    content(disk, second.path)[BATCH_BYTES + 80] ^= 1
    again = reopened(disk, recovery_point=20)
    assert again.log_end_offset == 20
    with pytest.raises(CorruptBatch):
        list(again.batches(0))
    assert [parse_header(batch).base_offset for batch in again.batches(second.base_offset + 2)][-1] == 19


def test_an_unreadable_header_below_the_recovery_point_stays_and_the_log_goes_on_behind_it(
    disk: FaultDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(disk, 4)
    log.flush()
    fill(log, 1)
    (only,) = log.segments
    size = only.size_bytes
    content(disk, only.path)[BATCH_BYTES * 2 : BATCH_BYTES * 3] = bytes(BATCH_BYTES)
    # Without an index there is no way around the damage.
    disk.unlink(only.index_path)
    with caplog.at_level(logging.ERROR):
        again = reopened(disk, recovery_point=4)
    assert "damage below the recovery point" in caplog.text
    assert len(content(disk, only.path)) == size
    assert again.log_end_offset == 4
    assert append(again, b"behind") == 4
    assert [record.offset for record in read_all(again, 4)] == [4]
    for offset in (2, 3):
        with pytest.raises(CorruptBatch):
            again.read(offset, 10_000, 5)
    assert [record.offset for record in read_first(again, 0)] == [0, 1]
    assert reopened(disk, recovery_point=4).log_end_offset == 5


def test_a_log_whose_first_batch_below_the_recovery_point_is_gone_says_so_to_readers(disk: FaultDisk) -> None:
    log = filled(disk, 4)
    log.flush()
    (only,) = log.segments
    content(disk, only.path)[8:16] = b"\0\0\xff\xff\0\0\0\0"
    disk.unlink(only.index_path)
    again = reopened(disk, recovery_point=4)
    assert again.log_end_offset == 4
    with pytest.raises(CorruptBatch):
        again.read(0, 10_000, 4)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "half", "falling", "zeros"])
def test_indexes_are_built_again(disk: FaultDisk, clean: bool, suffix: str, damage: str) -> None:
    log = filled(disk)
    log.close()
    for segment in log.segments:
        path = segment.path.with_suffix(suffix)
        if damage == "missing":
            disk.unlink(path)
        elif damage == "empty":
            content(disk, path).clear()
        elif damage == "garbage":
            content(disk, path)[:] = b"\xa5" * 60
        elif damage == "zeros":
            content(disk, path)[:] = bytes(len(content(disk, path)))
        elif damage == "half":
            content(disk, path).extend(b"\1\2\3")
        else:
            falling = struct.pack(">IIII", 5, 200, 4, 100) if suffix == ".index" else struct.pack(">qIqI", 9, 5, 8, 6)
            content(disk, path)[:] = falling
    again = reopened(disk, log.recovery_point, clean=clean)
    assert offsets(again) == list(range(20))
    assert again.offset_for_timestamp(START_MS) == (0, START_MS)
    assert again.offset_of_max_timestamp() == (0, START_MS)
    fill(again, 10)
    again.close()
    for segment in again.segments[:-1]:
        if damage not in ("empty", "zeros"):
            assert segment.index_path in disk.names and len(content(disk, segment.index_path)) % 8 == 0
            assert len(segment.index) > 0


def test_what_was_half_done_is_removed(disk: FaultDisk) -> None:
    log = filled(disk)
    for name in ("00000000000000000007.log.deleted", "x.tmp", "00000000000000000003.log.cleaned", f"{77:020d}.index"):
        disk.close(disk.open(log.directory / name, 0o100))
    reopened(disk)
    assert not [name for name in disk.listdir(log.directory) if name.endswith((".deleted", ".tmp", ".cleaned"))]
    assert not disk.exists(log.directory / f"{77:020d}.index")


def test_a_segment_whose_predecessor_lost_its_end_is_not_believed(disk: FaultDisk) -> None:
    log = filled(disk)
    second, third = log.segments[1:3]
    del content(disk, second.path)[-BATCH_BYTES:]
    again = reopened(disk, recovery_point=second.base_offset)
    assert again.log_end_offset == third.base_offset - 1
    assert offsets(again) == list(range(third.base_offset - 1))
    # Below the recovery point the hole is damage, and nothing is cut.
    log = filled(disk, 0)
    fill(log, 20)
    del content(disk, log.segments[1].path)[-BATCH_BYTES:]
    assert reopened(disk, recovery_point=log.log_end_offset).log_end_offset == log.log_end_offset


def test_an_empty_last_segment_is_used(disk: FaultDisk) -> None:
    log = filled(disk)
    log.roll(START_MS)
    again = reopened(disk)
    assert again.log_end_offset == 20 and append(again, b"x") == 20


def test_a_log_that_ends_below_its_start_begins_anew(disk: FaultDisk) -> None:
    filled(disk)
    log = open_log(DATA, CONFIG, disk=disk, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, b"x") == 50


def with_producers(disk: FaultDisk, *, flush_at: int = -1) -> PartitionLog:
    log = open_log(DATA, CONFIG, disk=disk)
    for number in range(30):
        append(log, bytes(60), producer_id=number % 3, producer_epoch=0, base_sequence=number // 3)
        if number == flush_at:
            log.flush()
    return log


@pytest.mark.parametrize("flush_at", [-1, 0, 5, 17, 29])
def test_producers_are_known_again_after_a_crash(disk: FaultDisk, flush_at: int) -> None:
    log = with_producers(disk, flush_at=flush_at)
    again = reopened(disk, log.recovery_point)
    assert {key: entry.last_sequence for key, entry in again.producer_state.entries.items()} == {0: 9, 1: 9, 2: 9}
    repeated = parse_header(batch_of(bytes(60), producer_id=2, producer_epoch=0, base_sequence=9))
    assert again.producer_state.check(repeated) == Duplicate(29, 29, START_MS)


def test_a_clean_close_takes_a_snapshot_and_the_next_start_reads_it(disk: FaultDisk) -> None:
    log = with_producers(disk)
    log.close()
    assert disk.exists(log.directory / f"{30:020d}.snapshot")
    again = reopened(disk, log.recovery_point, clean=True)
    assert {key: entry.last_sequence for key, entry in again.producer_state.entries.items()} == {0: 9, 1: 9, 2: 9}


@pytest.mark.parametrize("spoil", [lambda data: data.clear(), lambda data: data.__setitem__(8, data[8] ^ 1)])
def test_a_damaged_snapshot_gives_way_to_an_older_one_and_to_the_batches(
    disk: FaultDisk, spoil: Callable[[bytearray], None]
) -> None:
    log = with_producers(disk)
    log.close()
    snapshots = [name for name in disk.listdir(log.directory) if name.endswith(".snapshot")]
    assert len(snapshots) > 2
    for name in snapshots[1:]:
        spoil(content(disk, log.directory / name))
    again = reopened(disk, log.recovery_point, clean=True)
    assert {key: entry.last_sequence for key, entry in again.producer_state.entries.items()} == {0: 9, 1: 9, 2: 9}


def test_a_snapshot_beyond_the_end_is_removed(disk: FaultDisk) -> None:
    log = with_producers(disk)
    log.close()
    del content(disk, log.segments[-1].path)[-1:]
    again = reopened(disk, recovery_point=log.segments[-1].base_offset)
    assert again.log_end_offset == 29
    assert not disk.exists(log.directory / f"{30:020d}.snapshot")
    assert again.producer_state.entries[2].last_sequence == 8


def test_producers_that_were_idle_too_long_are_not_known_again(disk: FaultDisk) -> None:
    log = with_producers(disk)
    log.close()
    clock = TestClock(START_MS + 86_400_000)
    again = open_log(DATA, CONFIG, disk=disk, clock=clock, clean=True, recovery_point=log.recovery_point)
    assert len(again.producer_state) == 0


@pytest.mark.parametrize("timestamp", [-1, START_MS - 1_000 * 86_400_000])
def test_records_with_old_times_do_not_make_their_producer_idle(disk: FaultDisk, timestamp: int) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    for number in range(12):
        append(log, b"x" * 60, timestamp=timestamp, producer_id=1, producer_epoch=0, base_sequence=number)
    again = reopened(disk, 0)
    assert again.producer_state.entries[1].last_sequence == 11
    again.truncate_to(7)
    assert again.producer_state.expire(START_MS + 86_399_999, 86_400_000) == 0
    assert again.producer_state.entries[1].last_sequence == 6
    assert again.producer_state.expire(START_MS + 86_400_000, 86_400_000) == 1


@pytest.mark.parametrize("transactional", [False, True])
def test_a_crash_costs_no_snapshot_of_a_closed_segment(disk: FaultDisk, transactional: bool) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    for number in range(20):
        options = {"producer_id": 1, "producer_epoch": 0, "transactional": transactional}
        append(log, bytes(60), base_sequence=number, **options)
    ends = [segment.next_offset for segment in log.segments[:-1]]
    before = [snapshot_from_bytes(log.producer_snapshot_at(end) or b"") for end in ends]
    assert len(ends) > 1 and all(before)
    again = reopened(disk, 0)
    assert [snapshot_from_bytes(again.producer_snapshot_at(end) or b"") for end in ends] == before
    again.delete_local_segments_below(ends[-1])
    last = reopened(disk, 0)
    assert last.producer_state.entries[1].last_sequence == 19


def test_producers_behind_damage_may_begin_anywhere(disk: FaultDisk) -> None:
    log = with_producers(disk)
    log.flush()
    for name in disk.listdir(log.directory):
        if name.endswith(".snapshot"):
            disk.unlink(log.directory / name)
    content(disk, log.segments[-2].path)[:60] = bytes(60)
    again = reopened(disk, recovery_point=30)
    header = parse_header(batch_of(b"x", producer_id=2, producer_epoch=0, base_sequence=10))
    assert again.producer_state.check(header) is None


@pytest.mark.parametrize("stored", ["flushed", "never", "missing", "garbage"])
def test_leader_epochs_are_known_again(disk: FaultDisk, stored: str) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    fill(log, 8, leader_epoch=1)
    if stored != "never":
        log.flush()
    fill(log, 8, leader_epoch=4)
    path = log.directory / "leader-epoch-checkpoint"
    if stored == "missing":
        disk.unlink(path)
    elif stored == "garbage":
        content(disk, path)[:] = b"0\n1\nx"
    again = reopened(disk, log.recovery_point)
    assert again.leader_epochs.entries == [(1, 0), (4, 8)]
    again.close()
    assert bytes(content(disk, path)) == b"0\n2\n1 0\n4 8\n"


def test_an_epoch_whose_records_were_cut_is_forgotten(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    fill(log, 3, leader_epoch=1)
    log.flush()
    fill(log, 1, leader_epoch=4)
    log.flush()
    del content(disk, log.segments[-1].path)[-5:]
    assert reopened(disk, recovery_point=3).leader_epochs.entries == [(1, 0)]


def test_aborted_transactions_above_the_recovery_point_are_found_again(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    for number in range(12):
        append(log, bytes(60), producer_id=5, producer_epoch=0, base_sequence=number, transactional=True)
        stage(log, bytearray(build_marker(ABORT, 1, producer_id=5, producer_epoch=0, now_ms=START_MS)))
        log.write_staged()
        if number == 5:
            log.flush()
    expected = log.aborted_transactions(0, 24)
    assert len(expected) == 12 and len(log.segments) > 2
    again = reopened(disk, log.recovery_point)
    assert again.aborted_transactions(0, 24) == expected
    again.close()
    clean = reopened(disk, again.recovery_point, clean=True)
    assert clean.aborted_transactions(0, 24) == expected


def test_an_open_transaction_holds_the_last_stable_offset_after_a_start(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    fill(log, 2)
    append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    fill(log, 20)
    assert reopened(disk).last_stable_offset(23) == 2
    log.close()
    assert reopened(disk, log.recovery_point, clean=True).last_stable_offset(23) == 2


def test_the_age_of_the_oldest_record_is_taken_from_the_record_after_a_start(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk, clock=TestClock(START_MS + 500))
    append(log, b"x", now_ms=START_MS + 500, timestamp=START_MS)
    assert log.active_segment.first_append_ms == START_MS + 500
    assert reopened(disk).active_segment.first_append_ms == START_MS


def test_a_snapshot_below_the_first_segment_is_not_believed(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    append(log, bytes(60), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(START_MS)
    log.flush()
    stage(log, bytearray(build_marker(ABORT, 1, producer_id=5, producer_epoch=0, now_ms=START_MS)))
    log.write_staged()
    log.roll(START_MS)
    fill(log, 3)
    for segment in log.segments[:2]:
        for path in segment.paths:
            if disk.exists(path):
                disk.unlink(path)
    again = reopened(disk, log.recovery_point)
    assert again.segments[0].base_offset == 2
    assert again.last_stable_offset(5) == 5


def test_producers_are_known_where_the_log_begins_after_retention(disk: FaultDisk) -> None:
    log = with_producers(disk)
    log.delete_local_segments_below(log.segments[-1].base_offset)
    again = reopened(disk)
    assert {key: entry.last_sequence for key, entry in again.producer_state.entries.items()} == {0: 9, 1: 9, 2: 9}


def test_snapshots_of_earlier_clean_ends_do_not_pile_up(disk: FaultDisk) -> None:
    log = open_log(DATA, CONFIG, disk=disk)
    for _ in range(4):
        fill(log, 2)
        log.close()
        log = reopened(disk, log.recovery_point, clean=True)
    bases = {segment.base_offset for segment in log.segments}
    names = [int(name[:20]) for name in disk.listdir(log.directory) if name.endswith(".snapshot")]
    assert [offset for offset in names if offset not in bases] == [8]
