"""Logs that are cleaned in tests: keyed records, a round from its plan to its end, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from appliance.base.disk import Disk
from appliance.log.cleaner import CleaningRound, CleaningStats
from appliance.log.compacted_log import CleanerLimits
from appliance.log.partition_log import PartitionLog
from appliance.log.segment import Segment
from appliance.log.segment_swap import CleanedSegment
from appliance.records.batch import check_batch
from appliance.records.builder import build_batch
from appliance.records.reader import Record, read_records
from tests.support.logs import START_MS

LIMITS = CleanerLimits(map_bytes=1 << 20, max_bytes_per_second=1e300)


class Survivor(NamedTuple):
    """A record that a reader finds."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def keyed(*records: tuple[bytes | None, bytes | None], timestamp: int = START_MS, **options: int | bool) -> bytearray:
    """A batch of (key, value) records, a millisecond apart."""
    rows = [(timestamp + n, key, value, ()) for n, (key, value) in enumerate(records)]
    return bytearray(build_batch(rows, **options))  # type: ignore[arg-type]


def append_keyed(
    log: PartitionLog, *records: tuple[bytes | None, bytes | None], now_ms: int = START_MS, **options: int | bool
) -> int:
    """One batch, written at once; returns its base offset."""
    return append_batch(log, keyed(*records, **{"timestamp": now_ms, **options}), now_ms)


def append_batch(log: PartitionLog, batch: bytearray, now_ms: int = START_MS) -> int:
    header = check_batch(batch)
    offset = log.stage(memoryview(batch), header, 1, now_ms)
    log.write_staged()
    return offset


def roll_and_flush(log: PartitionLog, now_ms: int = START_MS) -> None:
    """Close the active segment, and let the next start know that all is durable."""
    log.roll(now_ms)
    log.flush()
    log.stored_recovery_point = log.recovery_point


def clean(
    log: PartitionLog, disk: Disk, now_ms: int = START_MS, limits: CleanerLimits = LIMITS, stable_offset: int = -1
) -> CleaningStats:
    """One round, as the broker and its helper do it."""
    for segment in log.unlearned_segments():
        segment.learn_times()
    stable = log.last_stable_offset(log.log_end_offset) if stable_offset < 0 else stable_offset
    part = log.cleanable_part(stable, now_ms)
    job, sources = log.cleaning_job(part, limits, now_ms)
    round_ = CleaningRound(job, disk)
    waiting = list(sources)
    for cleaned in round_.run():
        group, waiting = waiting[: len(cleaned.sources)], waiting[len(cleaned.sources) :]
        put_in_place(log, cleaned, group)
    log.sync_directory()
    log.cleaned_to(round_.end_offset)
    return round_.stats


def put_in_place(log: PartitionLog, cleaned: CleanedSegment, group: list[Segment]) -> None:
    replacement = log.replacement(cleaned, group)
    replacement.prepare()
    assert log.replace(replacement)
    replacement.finish(START_MS)
    log.replaced(replacement)


def clean_all(log: PartitionLog, disk: Disk, now_ms: int = START_MS, limits: CleanerLimits = LIMITS) -> int:
    """Rounds until nothing is dirty; how many."""
    rounds = 0
    while log.cleanable_part(log.last_stable_offset(log.log_end_offset), now_ms).cleanable_bytes:
        clean(log, disk, now_ms, limits)
        rounds += 1
    return rounds


def survivors(log: PartitionLog) -> list[Survivor]:
    """Every data record of the log, each batch with its crc checked."""
    found: list[Survivor] = []
    for batch in log.batches(log.local_log_start_offset):
        header = check_batch(batch)
        if not header.is_control:
            found += map(survivor, read_records(batch))
    return found


def survivor(record: Record) -> Survivor:
    return Survivor(record.offset, record.key, record.value, record.timestamp)


def newest(records: Iterable[Survivor]) -> dict[bytes | None, Survivor]:
    """The last record of each key."""
    return {record.key: record for record in records}
