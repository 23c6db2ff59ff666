"""A round of cleaning, from the dirty segments to the files that take their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.disk import SystemDisk
from appliance.log.checkpoints import read_file
from appliance.log.cleaner import MAP_ENTRIES_MIN, CleaningRound, Throttle
from appliance.log.compacted_log import CleanerLimits
from appliance.log.open_files import OpenFiles, Reaper, SegmentGone
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import check_batch, set_log_append_time, split_batches
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.records.errors import CorruptBatch
from tests.support.compaction import (
    LIMITS,
    append_batch,
    append_keyed,
    clean,
    clean_all,
    keyed,
    newest,
    roll_and_flush,
    survivors,
)
from tests.support.logs import START_MS, TestClock, config_of, open_log

COMPACT = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0, "file_delete_delay_ms": 0}
DISK = SystemDisk()
DAY_MS = 86_400_000


def compacted_log(folder: Path, **options: object) -> PartitionLog:
    config = options.pop("config", {})
    assert isinstance(config, dict)
    return open_log(folder, config_of(**(COMPACT | config)), **options)  # type: ignore[arg-type]


def fill_keys(log: PartitionLog, count: int, keys: int, size: int = 40) -> None:
    for n in range(count):
        append_keyed(log, (b"k%d" % (n % keys), b"%06d" % n * (size // 6)), codec=n % 5)


def headers_of(log: PartitionLog) -> list[tuple[int, int, int]]:
    return [
        (header.base_offset, header.last_offset, header.record_count)
        for batch in log.batches(0)
        for header in [check_batch(batch)]
    ]


def test_the_newest_record_of_each_key_is_left_at_its_offset(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 200, 7)
    roll_and_flush(log)
    before = survivors(log)
    expected = sorted(newest(before).values())
    assert len(log.segments) > 3
    clean_all(log, DISK)
    assert survivors(log) == expected
    assert log.cleaned_offset == log.log_end_offset == 200
    assert [read.offset for read in survivors(log)] == list(range(193, 200))


def test_small_segments_become_one_in_the_next_round(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 200, 7)
    roll_and_flush(log)
    count = len(log.segments)
    clean_all(log, DISK)
    assert len(log.segments) == count
    append_keyed(log, (b"k1", b"later"))
    roll_and_flush(log)
    clean_all(log, DISK)
    assert len(log.segments) == 2
    assert sorted(path.name for path in log.directory.glob("*.log")) == [s.path.name for s in log.segments]


def test_what_is_left_is_the_same_after_a_restart_of_any_kind(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 200, 7)
    roll_and_flush(log)
    clean_all(log, DISK)
    append_keyed(log, (b"k1", b"later"))
    expected = survivors(log)
    log.close(clean=True)
    for options in ({"clean": True}, {"clean": False}, {"clean": False, "recovery_point": 120}):
        log = compacted_log(tmp_path, **options)
        assert survivors(log) == expected
        assert log.log_end_offset == 201
        log.close(clean=False)


def test_the_active_segment_is_not_touched(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append_keyed(log, (b"a", b"1"))
    append_keyed(log, (b"a", b"2"))
    log.flush()
    log.stored_recovery_point = log.recovery_point
    assert log.cleanable_part(2, START_MS).cleanable_bytes == 0


def test_what_is_not_durable_is_not_touched(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append_keyed(log, (b"a", b"1"))
    append_keyed(log, (b"a", b"2"))
    log.roll(START_MS)
    assert log.cleanable_part(2, START_MS).cleanable_bytes == 0
    log.flush()
    assert log.cleanable_part(2, START_MS).cleanable_bytes == 0
    log.stored_recovery_point = 2
    assert log.cleanable_part(2, START_MS).cleanable_bytes > 0


def test_a_record_without_a_key_goes(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append_keyed(log, (None, b"lost"), (b"a", b"kept"))
    roll_and_flush(log)
    clean(log, DISK)
    assert [record.value for record in survivors(log)] == [b"kept"]


def test_a_tombstone_stays_until_its_horizon_has_passed(tmp_path: Path) -> None:
    clock = TestClock()
    log = compacted_log(tmp_path, clock=clock, config={"delete_retention_ms": DAY_MS})
    append_keyed(log, (b"a", b"1"), (b"b", b"1"))
    append_keyed(log, (b"a", None), (b"c", b"1"), timestamp=START_MS + 5)
    roll_and_flush(log)
    clean(log, DISK)
    left = survivors(log)
    assert [(record.key, record.value, record.timestamp) for record in left] == [
        (b"b", b"1", START_MS + 1),
        (b"a", None, START_MS + 5),
        (b"c", b"1", START_MS + 6),
    ]
    last = check_batch(list(log.batches(0))[-1])
    assert last.has_delete_horizon and last.base_timestamp == START_MS + DAY_MS
    assert last.max_timestamp == START_MS + 6

    def again(now_ms: int) -> list[bytes | None]:
        append_keyed(log, (b"z%d" % now_ms, b"1"))
        roll_and_flush(log)
        clean(log, DISK, now_ms)
        return [record.key for record in survivors(log)]

    assert b"a" in again(START_MS + DAY_MS - 1)
    assert again(START_MS + DAY_MS)[:2] == [b"b", b"c"]


def test_records_of_an_aborted_transaction_go_and_its_marker_later(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, config={"delete_retention_ms": 1_000})
    append_keyed(log, (b"a", b"old"))
    for key, kind in ((b"a", ABORT), (b"b", COMMIT)):
        append_keyed(
            log, (key, b"new"), producer_id=7, producer_epoch=0, base_sequence=int(key == b"b"), transactional=True
        )
        append_batch(log, bytearray(build_marker(kind, 0, producer_id=7, producer_epoch=0, now_ms=START_MS)))
    append_keyed(log, (b"x", b"1"), producer_id=7, producer_epoch=0, base_sequence=2)
    roll_and_flush(log)
    clean(log, DISK)
    assert [(record.key, record.value) for record in survivors(log)] == [(b"a", b"old"), (b"b", b"new"), (b"x", b"1")]
    assert [entry.first_offset for entry in log.aborted_transactions(0, 10)] == [1]
    # The abort's marker is of no use in the next round, and goes when the horizon of that has passed.
    for round_, markers in ((1, [2, 4]), (2, [4])):
        append_keyed(log, (b"z%d" % round_, b"1"))
        roll_and_flush(log)
        clean(log, DISK, START_MS + round_ * 2_000)
        found = [check_batch(batch).base_offset for batch in log.batches(0) if check_batch(batch).is_control]
        assert found == markers
        assert log.aborted_transactions(0, 10) == []


def test_what_is_not_decided_yet_is_not_touched(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append_keyed(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(START_MS)
    append_keyed(log, (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    roll_and_flush(log)
    part = log.cleanable_part(log.last_stable_offset(log.log_end_offset), START_MS)
    assert part.first_uncleanable_offset == 2


def test_the_sequence_of_a_live_producer_survives(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    append_keyed(log, (b"a", b"1"), (b"b", b"1"), producer_id=9, producer_epoch=3, base_sequence=10)
    for n in range(30):
        append_keyed(log, (b"a", b"%d" % n), (b"b", b"%d" % n))
    roll_and_flush(log)
    clean(log, DISK)
    emptied = headers_of(log)[0]
    assert emptied == (0, 1, 0)
    entries = log.producer_state.entries
    log.close(clean=False)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log = compacted_log(tmp_path, clean=False)
    assert log.producer_state.entries[9].last_sequence == entries[9].last_sequence == 11
    assert log.producer_state.entries[9].epoch == 3


def test_a_full_map_ends_the_round_and_the_next_goes_on(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, config={"segment_bytes": 20_000})
    for n in range(300):
        append_keyed(log, *((b"k%d" % (n * 10 + i), b"%d" % n) for i in range(10)))
    for n in range(300):
        append_keyed(log, *((b"k%d" % (n * 10 + i), b"again %d" % n) for i in range(10)))
    roll_and_flush(log)
    expected = sorted(newest(survivors(log)).values())
    first = clean(log, DISK, limits=CleanerLimits(0, 1e300))
    assert MAP_ENTRIES_MIN <= first.map_keys < MAP_ENTRIES_MIN + 10
    assert log.cleaned_offset == 1_000
    assert clean_all(log, DISK, limits=CleanerLimits(0, 1e300)) > 3
    assert sorted(newest(survivors(log)).values()) == expected
    assert len(survivors(log)) == len(expected) == 3_000


def test_long_keys_are_told_apart(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    long = [b"x" * 500 + b"%d" % n for n in range(3)]
    append_keyed(log, *((key, b"1") for key in long))
    append_keyed(log, (long[1], b"2"))
    roll_and_flush(log)
    clean(log, DISK)
    assert [(record.key, record.value) for record in survivors(log)] == [
        (long[0], b"1"),
        (long[2], b"1"),
        (long[1], b"2"),
    ]


def test_a_slice_on_its_way_keeps_the_old_file(tmp_path: Path) -> None:
    reaper = Reaper(DISK)
    log = compacted_log(tmp_path, reaper=reaper)
    fill_keys(log, 30, 3)
    roll_and_flush(log)
    piece = log.read(0, 100_000, 30)
    assert piece is not None
    with_old = piece.retain().read()
    clean_all(log, DISK)
    reaper.unlink(reaper.due(START_MS))
    assert piece.read() == with_old and len(with_old) == piece.length
    piece.release()
    assert piece.segment.descriptor == -1
    with pytest.raises(SegmentGone):
        piece.segment.open()


def test_a_reader_in_a_helper_thread_goes_on_in_the_cleaned_segment(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, files=OpenFiles(DISK, max_open=1))
    fill_keys(log, 200, 5)
    roll_and_flush(log)
    reader = log.batches(0)
    seen = [check_batch(next(reader)).base_offset for _ in range(3)]
    clean_all(log, DISK)
    seen += [check_batch(batch).base_offset for batch in reader]
    assert seen == sorted(set(seen))
    assert set(range(195, 200)) <= set(seen)


def test_segments_that_changed_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 60, 3)
    roll_and_flush(log)
    job, sources = log.cleaning_job(log.cleanable_part(60, START_MS), LIMITS, START_MS)
    cleaned = next(CleaningRound(job, DISK).run())
    log.truncate_to(10)
    before = survivors(log)
    replacement = log.replacement(cleaned, sources[: len(cleaned.sources)])
    replacement.prepare()
    assert not log.replace(replacement)
    replacement.discard()
    assert survivors(log) == before
    assert not list(log.directory.glob("*.cleaned")) and not list(log.directory.glob("*.swap"))


def test_damage_ends_the_round_and_changes_nothing(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 60, 3)
    roll_and_flush(log)
    path = log.segments[1].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    names = sorted(p.name for p in log.directory.iterdir())
    with pytest.raises(CorruptBatch):
        clean(log, DISK)
    left = sorted(p.name for p in log.directory.iterdir() if p.suffix != ".cleaned")
    assert left == names
    assert path.read_bytes() == content


def test_a_cut_makes_what_was_clean_dirty_again(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    fill_keys(log, 60, 3)
    roll_and_flush(log)
    clean_all(log, DISK)
    assert log.cleaned_offset == 60
    log.truncate_to(58)
    assert log.cleaned_offset <= 58


def test_the_indexes_of_a_cleaned_segment_are_those_that_a_scan_would_build(tmp_path: Path) -> None:
    log = compacted_log(tmp_path, config={"segment_bytes": 100_000, "index_interval_bytes": 300})
    for n in range(400):
        append_keyed(log, (b"k%d" % (n % 60), b"v%d" % n), timestamp=START_MS + (n * 7919) % 1_000)
    roll_and_flush(log)
    clean_all(log, DISK)
    segment = log.segments[0]
    stored = [read_file(DISK, path) for path in (segment.index_path, segment.time_index_path)]
    assert all(stored)
    segment.rebuild_indexes()
    assert [read_file(DISK, path) for path in (segment.index_path, segment.time_index_path)] == stored
    for offset in range(0, 401, 13):
        piece = log.read(offset, 10_000, 400) if offset < 400 else None
        following = [record for record in survivors(log) if record.offset >= offset]
        if piece is not None and following:
            first = check_batch(next(iter(split_batches(piece.read()))))
            assert first.base_offset <= following[0].offset


def test_times_are_found_where_records_are_gone(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    for n in range(60):
        append_keyed(log, (b"k%d" % (n % 3), b"%d" % n), now_ms=START_MS + n)
    append_keyed(log, (b"gone", b"1"), now_ms=START_MS + 500, producer_id=4, producer_epoch=0, base_sequence=0)
    append_keyed(log, (b"gone", b"2"), now_ms=START_MS + 100)
    roll_and_flush(log)
    clean_all(log, DISK)
    found = log.offset_for_timestamp(START_MS + 3)
    assert found is not None and found.offset == 57
    latest = log.offset_of_max_timestamp()
    assert latest is not None and (latest.offset, latest.timestamp) == (61, START_MS + 100)


def test_the_bandwidth_limit_counts_reads_and_writes() -> None:
    clock = TestClock()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.time_ms += round(seconds * 1_000)

    throttle = Throttle(clock, sleep, 1_000)
    for _ in range(5):
        throttle.spend(1_000)
    assert sum(slept) == pytest.approx(5)
    clock.time_ms += 60_000
    throttle.spend(500)
    assert sum(slept) == pytest.approx(5.5)


def test_log_append_time_is_kept(tmp_path: Path) -> None:
    log = compacted_log(tmp_path)
    batch = keyed((b"a", b"1"), (b"b", None), (b"a", b"2"))
    set_log_append_time(batch, START_MS + 77)
    append_batch(log, batch)
    roll_and_flush(log)
    clean(log, DISK)
    assert [(record.key, record.timestamp) for record in survivors(log)] == [
        (b"b", START_MS + 77),
        (b"a", START_MS + 77),
    ]
