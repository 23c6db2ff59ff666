"""One round of cleaning in one log: reads the dirty part, writes what is left of each group of segments to new files.

Runs in a helper process, beside the broker that owns the log. It only adds files `<offset>.<kind>.cleaned`, durable
before it tells of them; the broker puts them in the place of the old ones (`segment_swap.py`). A round that ends early
leaves nothing but such files, which the next round or the next start removes.

1. The newest offset of each key in the dirty part goes into a map of bounded size. When it is full, the round ends
   there, and the next one goes on.
2. Every segment from the start of the log to that end is filtered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.disk import Disk
from appliance.log.checkpoints import read_file
from appliance.log.cleaned_file import CleanedFile
from appliance.log.compaction import SourceSegment, group_segments
from appliance.log.compaction_filter import LastRecord, Round, clean_batch, note_offsets, unpack
from appliance.log.compaction_transactions import CleanedTransactions
from appliance.log.indexes import (
    AbortedTransaction,
    CorruptIndex,
    aborted_from_bytes,
)
from appliance.log.scan import walk_batches
from appliance.log.segment import file_stem
from appliance.log.segment_swap import CLEANED_SUFFIX, CleanedSegment
from appliance.records.batch import BatchHeader
from appliance.records.control import read_marker
from appliance.records.errors import CorruptBatch

MAP_ENTRY_BYTES = 200
"""Memory of one key in the map of offsets, at most: key, number, their places in the table, and room to grow."""
MAP_ENTRIES_MIN = 1_000


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """A round in one log, as the broker asks for it. Can be pickled."""

    directory: Path
    segments: list[SourceSegment]
    """Every segment that begins below `first_uncleanable_offset`, oldest first."""
    later_bases: list[int]
    """Base offsets of closed segments behind them: their transaction indexes may name what has begun before."""
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: list[AbortedTransaction]
    """Those that begin below `first_uncleanable_offset` and are in no file yet."""
    producers: dict[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    max_bytes_per_second: float
    keep_tombstones: bool = False


@dataclass(slots=True)
class CleaningStats:
    """What a round did."""

    map_keys: int = 0
    map_keys_max: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


class Throttle:
    """Keeps reads and writes together below a number of bytes per second."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None], bytes_per_second: float) -> None:
        self._clock = clock
        self._sleep = sleep
        self._bytes_per_second = bytes_per_second
        self._free_ms = float(clock.monotonic_ms())

    def spend(self, count: int) -> None:
        """Wait until `count` bytes fit after those before them."""
        now_ms = self._clock.monotonic_ms()
        ahead_ms = max(self._free_ms, now_ms) + count * 1_000 / self._bytes_per_second
        self._free_ms = ahead_ms
        if ahead_ms - now_ms >= 1:
            self._sleep((ahead_ms - now_ms) / 1_000)


class CleaningRound:
    """Runs one job: `run` yields each new segment when its files are durable."""

    def __init__(self, job: CleaningJob, disk: Disk, throttle: Throttle | None = None) -> None:
        self.job = job
        self.stats = CleaningStats(map_keys_max=max(job.map_bytes // MAP_ENTRY_BYTES, MAP_ENTRIES_MIN))
        self.end_offset = job.first_dirty_offset
        """What lies below it is clean once the last segment is in its place."""
        self._disk = disk
        self._throttle = throttle
        self._offsets: dict[bytes, int] = {}

    def run(self) -> Iterator[CleanedSegment]:
        """Clean.

        Raises:
            CorruptBatch: damage on the way; the log cannot be cleaned.
            OSError: the disk refuses, or the log is not there any more.
        """
        job = self.job
        remove_cleaned(self._disk, job.directory)
        aborted = self._aborted_transactions()
        self._learn_offsets(aborted)
        wanted = [self._measured(segment) for segment in job.segments if segment.base_offset < self.end_offset]
        latest_offset = self.end_offset - 1
        round_ = Round(
            self._offsets, latest_offset, job.producers, job.now_ms, job.delete_retention_ms, job.keep_tombstones
        )
        transactions = CleanedTransactions(aborted)
        groups = group_segments(wanted, segment_bytes=job.segment_bytes, index_bytes=job.segment_index_bytes)
        for group in groups:
            yield self._clean(group, round_, transactions)

    def _measured(self, segment: SourceSegment) -> SourceSegment:
        stem = self.job.directory / file_stem(segment.base_offset)
        sizes = [_size_of(self._disk, stem.with_name(stem.name + suffix)) for suffix in (".index", ".timeindex")]
        return segment._replace(index_bytes=max(sizes))

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        """All that overlap the part of the log that is read, from the segments that hold their markers."""
        job = self.job
        limit = job.first_uncleanable_offset
        found: list[AbortedTransaction] = []
        for base_offset in [segment.base_offset for segment in job.segments] + job.later_bases:
            path = job.directory / f"{file_stem(base_offset)}.txnindex"
            try:
                entries = aborted_from_bytes(read_file(self._disk, path) or b"")
            except CorruptIndex as error:
                raise CorruptBatch(f"{path} is damaged: {error}") from None
            found += [entry for entry in entries if entry.first_offset < limit]
            if entries and entries[-1].last_stable_offset >= limit:
                return found
        return found + job.aborted

    def _learn_offsets(self, aborted: list[AbortedTransaction]) -> None:
        """Fill the map from the dirty part."""
        job, stats, offsets = self.job, self.stats, self._offsets
        keys_max = stats.map_keys_max
        start, end = job.first_dirty_offset, job.first_uncleanable_offset
        transactions = CleanedTransactions(entry for entry in aborted if entry.last_offset >= start)
        for segment in job.segments:
            if segment.next_offset <= start or segment.base_offset >= end:
                continue
            for header, batch in self._batches(segment):
                if header.base_offset >= end:
                    break
                if len(offsets) >= keys_max:
                    stats.map_keys = len(offsets)
                    return
                if header.is_control:
                    transactions.control_batch(header, read_marker(batch), header.record_count == 0)
                elif not transactions.data_batch(header) and header.record_count:
                    note_offsets(header, unpack(header, batch), start, offsets)
                self.end_offset = max(self.end_offset, header.next_offset)
            # Where records are gone already, nothing is left to be learned either.
            self.end_offset = max(self.end_offset, min(segment.next_offset, end))
        stats.map_keys = len(offsets)

    def _clean(self, group: list[SourceSegment], round_: Round, transactions: CleanedTransactions) -> CleanedSegment:
        job, stats = self.job, self.stats
        target = CleanedFile(self._disk, job.directory, group[0].base_offset, job.index_interval_bytes)
        last_filled = max((n for n, segment in enumerate(group) if segment.size_bytes), default=-1)
        try:
            target.open()
            for number, segment in enumerate(group):
                position = 0
                for header, batch in self._batches(segment):
                    position += len(batch)
                    is_discardable = self._judge(header, batch, transactions, target)
                    # The end of a file tells which of the old ones it stands for, should the power fail in between.
                    keep_empty = number == last_filled and position == segment.size_bytes
                    keep_empty = keep_empty or header.next_offset == job.first_uncleanable_offset
                    left = clean_batch(header, batch, round_, is_discardable=is_discardable, keep_empty=keep_empty)
                    stats.records_read += header.record_count
                    if left is not None:
                        self._spend(self._append(target, header, left))
            self._spend(target.write())
            stats.bytes_written += target.size_bytes
            return target.finish([segment.base_offset for segment in group])
        finally:
            target.close()

    def _append(self, target: CleanedFile, header: BatchHeader, left: bytes | memoryview) -> int:
        count = int.from_bytes(left[57:61], "big")
        max_timestamp = int.from_bytes(left[35:43], "big", signed=True)
        self.stats.records_kept += count
        return target.append(header, max_timestamp, left)

    @staticmethod
    def _judge(header: BatchHeader, batch: memoryview, transactions: CleanedTransactions, target: CleanedFile) -> bool:
        """Whether the batch may go for what its transaction came to."""
        if not header.is_control:
            return transactions.data_batch(header)
        may_go, transaction = transactions.control_batch(header, read_marker(batch), header.record_count == 0)
        if transaction is not None:
            target.aborted.append(transaction)
        return may_go

    def _batches(self, segment: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of a segment, crc checked, below the bandwidth limit."""
        path = self.job.directory / f"{file_stem(segment.base_offset)}.log"
        descriptor = self._disk.open(path, os.O_RDONLY)
        try:
            for _, header, batch in walk_batches(self._disk, descriptor, 0, segment.size_bytes, segment.base_offset):
                self.stats.bytes_read += len(batch)
                self._spend(len(batch))
                yield header, batch
        finally:
            self._disk.close(descriptor)

    def _spend(self, count: int) -> None:
        if self._throttle is not None and count:
            self._throttle.spend(count)


def remove_cleaned(disk: Disk, directory: Path) -> None:
    """Remove what an earlier round has left half done. Raises OSError."""
    for name in disk.listdir(directory):
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(directory / name)


def _size_of(disk: Disk, path: Path) -> int:
    try:
        descriptor = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return disk.size(descriptor)
    finally:
        disk.close(descriptor)
