"""What stands in a partition's folder after a start, and what of it can be believed.

- Below the recovery point everything was flushed: it is never cut, and not read again. Damage there stays; a read of it
  raises `CorruptBatch`.
- Above it each batch is checked, and the log ends before the first that is not whole.
- After a clean shutdown nothing is checked but the way to the end of the newest segment.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from appliance.log.checkpoints import read_file
from appliance.log.indexes import (
    ABORTED_ENTRY_BYTES,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    aborted_in_order,
    strictly_rises,
)
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.log.litter import segments_that_came_back
from appliance.log.open_files import DELETED_SUFFIX, OpenFiles, remove_tree
from appliance.log.producer_state import Producer
from appliance.log.scan import Tail, check_tail
from appliance.log.segment import NO_TIMESTAMP, Segment
from appliance.log.segment_swap import CLEANED_SUFFIX, finish_swaps
from appliance.records.batch import BatchHeader
from appliance.records.errors import CorruptBatch

logger = logging.getLogger(__name__)

_SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
_LITTER_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")
_OFFSET_DIGITS = 20


@dataclass(slots=True)
class RecoveredLog:
    """What recovery found."""

    segments: list[Segment]
    end_offset: int
    checked_from: int
    """Batches from here on were read and checked; equal to `end_offset` after a clean shutdown."""
    is_damaged: bool = False
    """The newest segment has damage below the recovery point: it is left as it is, and appends need a new one."""
    cut_bytes: int = 0
    tail_epochs: list[tuple[int, int]] = field(default_factory=list)
    """(leader epoch, first offset) as the checked batches say."""
    producers: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    """The last headers of each producer in the checked batches."""
    has_transactions: bool = False
    """Whether a checked batch is transactional or a marker."""
    snapshots: dict[int, dict[int, Producer]] = field(default_factory=dict)
    """Producers at the ends of closed segments that were checked: nobody has stored them yet."""


def offset_in_name(name: str) -> int | None:
    """The offset in the name of a segment's or snapshot's file."""
    stem = name.partition(".")[0]
    return int(stem) if len(stem) == _OFFSET_DIGITS and stem.isdecimal() else None


def list_segments(
    directory: Path, files: OpenFiles, index_interval_bytes: int, names: list[str], *, dense: bool = False
) -> tuple[list[Segment], frozenset[str]]:
    """The segments in a folder, oldest first, with their sizes, and the names of what is there. Finishes what an
    earlier life left half done. The newest segment is left open.

    Args:
        names: what is in the folder.
        dense: offsets have no holes between segments, and never had.
    """
    disk = files.disk
    bases: list[int] = []
    others: list[tuple[int, str]] = []
    litter: list[Path] = []
    deleted: list[int] = []
    if finish_swaps(disk, directory, names, offset_in_name):
        names = disk.listdir(directory)
    for name in names:
        offset = offset_in_name(name)
        if name.endswith(_LITTER_SUFFIXES):
            litter.append(directory / name)
            if offset is not None and name.endswith(f".log{DELETED_SUFFIX}"):
                deleted.append(offset)
        elif offset is not None and name.endswith(".log"):
            bases.append(offset)
        elif offset is not None and name.endswith(_SEGMENT_SUFFIXES):
            others.append((offset, name))
    known = set(bases)
    for offset, name in others:
        if offset not in known:
            disk.unlink(directory / name)
    segments = [Segment(directory, base, files, index_interval_bytes) for base in sorted(bases)]
    for segment, following in pairwise(segments):
        segment.next_offset = following.base_offset
    for segment in segments:
        segment.size_bytes = disk.size(segment.open())
        if segment is not segments[-1]:
            segment.close()
    if litter:
        count = segments_that_came_back(segments, deleted) if dense else 0
        for path in [path for segment in segments[:count] for path in segment.paths]:
            remove_tree(disk, path)
        del segments[:count]
        # What has been renamed or removed must not come back without these beside it.
        disk.fsync_directory(directory)
        for path in litter:
            remove_tree(disk, path)
    return segments, frozenset(names)


def recover_segments(
    segments: list[Segment],
    recovery_point: int,
    *,
    clean: bool,
    dense: bool,
    now_ms: int,
    cleaned_offset: int = -1,
    names: Container[str] | None = None,
) -> RecoveredLog:
    """Check the segments above the recovery point and open the newest for appends.

    `dense`: offsets have no holes between segments (the topic is not compacted), so a hole means lost data; not so
    below `cleaned_offset`, as the topic was compacted once. `names`: of what is in the folder, if that is known.
    """
    result = RecoveredLog([], segments[0].base_offset, -1)
    first_checked = len(segments) - 1
    if not clean:
        # The one that ends at the recovery point, too: after a cut it may have taken appends, and what follows it may
        # have come back.
        while first_checked > 0 and segments[first_checked].base_offset >= recovery_point:
            first_checked -= 1
    for number, segment in enumerate(segments):
        if number < first_checked:
            result.segments.append(segment)
            continue
        is_dense = dense and segment.base_offset > cleaned_offset
        misplaced = segment.base_offset != result.end_offset if is_dense else segment.base_offset < result.end_offset
        if number > first_checked and misplaced:
            logger.warning(
                "%s: offsets %d to %d are lost above the recovery point %d; the log ends at %d",
                segment.directory.name,
                result.end_offset,
                segment.base_offset,
                recovery_point,
                result.end_offset,
            )
            _drop(segments[number:], result)
            break
        if number > first_checked:
            segments[number - 1].close_for_appends()
            # Compaction may have taken the last batches before it.
            segments[number - 1].next_offset = segment.base_offset
        scan = _SegmentScan(segment, recovery_point, clean, names)
        scan.run(result, now_ms)
        result.segments.append(segment)
        result.is_damaged = segment.is_damaged
        if scan.found_bad_batch and not segment.is_damaged:
            _drop(segments[number + 1 :], result)
            break
    return result


def _drop(segments: list[Segment], result: RecoveredLog) -> None:
    """Segments behind the end of the log: they hold nothing that was promised."""
    for segment in segments:
        result.cut_bytes += segment.size_bytes
        segment.forget()
        for path in segment.paths:
            remove_tree(segment.disk, path)
    if segments:
        # They must not come back behind what is written now.
        segments[0].disk.fsync_directory(segments[0].directory)


class _SegmentScan:
    """Finds the end of one segment and brings its indexes into memory."""

    def __init__(self, segment: Segment, recovery_point: int, clean: bool, names: Container[str] | None) -> None:
        self.segment = segment
        self.names = names
        self.trusted_end = max(recovery_point, segment.base_offset)
        self.clean = clean
        self.found_bad_batch = False
        base_offset = segment.base_offset
        self.tail = Tail(base_offset, segment.index_interval_bytes, base_offset, NO_TIMESTAMP, base_offset)

    def run(self, result: RecoveredLog, now_ms: int) -> None:
        segment = self.segment
        if self.clean or self.trusted_end > segment.base_offset:
            self._load_indexes()
        try:
            self._walk_trusted()
        except CorruptBatch as error:
            self.found_bad_batch = True
            if self.tail.next_offset >= self.trusted_end:
                self._cut(result, error)
            else:
                # What was flushed stays. Offsets up to the recovery point were given out: the log goes on behind them.
                segment.is_damaged = True
                segment.suspect_damage()
                self.tail.next_offset = self.trusted_end
                logger.error("%s: damage below the recovery point: %s", segment.path, error)
        if result.checked_from < 0:
            result.checked_from = self.tail.next_offset
        if not self.found_bad_batch and not self.clean:
            self._walk_and_check(result)
        self._finish(result, now_ms)

    def _read(self, suffix: str) -> bytes | None:
        name = self.segment.file(suffix)
        if self.names is not None and name.rpartition("/")[2] not in self.names:
            return None
        return read_file(self.segment.disk, name)

    def _load_indexes(self) -> None:
        """Take from the index files what lies below the recovery point; nothing, if one is not in order."""
        segment = self.segment
        content, time_content = self._read(".index"), self._read(".timeindex")
        try:
            if content is None or time_content is None:
                return
            index = OffsetIndex.from_bytes(content, segment.size_bytes)
            time_index = TimeIndex.from_bytes(time_content)
        except CorruptIndex as error:
            logger.warning("%s: the index is built again: %s", segment.path, error)
            return
        if not self.clean:
            trusted = self.trusted_end - segment.base_offset
            while len(index) and index.offsets[-1] >= trusted:
                index.offsets.pop()
                index.positions.pop()
            index.stored_entries = len(index)
            # Unflushed pages may be old or empty between good ones.
            if not strictly_rises(index.offsets) or not strictly_rises(index.positions):
                return
        # A time index tells more than the offset index after a roll (its last entry): walk what lies behind both.
        time_index.truncate(index.offsets[-1] + 1 if len(index) else 0)
        if not strictly_rises(time_index.timestamps) or not _agrees(index, segment):
            return
        if len(index) and not len(time_index):
            # Lost pages, or a segment without timestamps.
            return
        self.tail.index, self.tail.time_index = index, time_index
        if len(index):
            self.tail.position = self.tail.indexed_position = index.positions[-1]
        if len(time_index):
            self.tail.max_timestamp = time_index.timestamps[-1]
            self.tail.max_timestamp_offset = segment.base_offset + time_index.offsets[-1]

    def _walk_trusted(self) -> None:
        segment = self.segment
        if not self.clean and self.tail.next_offset >= self.trusted_end:
            return
        for position, header in segment.headers(self.tail.position):
            if header.base_offset >= self.trusted_end and not self.clean:
                return
            self._note(position, header)

    def _walk_and_check(self, result: RecoveredLog) -> None:
        segment, tail = self.segment, self.tail
        tail.epochs, tail.producers = result.tail_epochs, result.producers
        try:
            check_tail(segment.disk, segment.open(), tail, segment.size_bytes)
        except CorruptBatch as error:
            self.found_bad_batch = True
            self._cut(result, error)
        result.has_transactions = result.has_transactions or tail.has_transactions

    def _cut(self, result: RecoveredLog, error: CorruptBatch) -> None:
        segment = self.segment
        result.cut_bytes += segment.size_bytes - self.tail.position
        logger.warning("%s: %s; log cut here", segment.path, error)
        segment.disk.truncate(segment.open(), self.tail.position)
        segment.size_bytes = self.tail.position

    def _note(self, position: int, header: BatchHeader) -> None:
        segment, tail = self.segment, self.tail
        if header.max_timestamp > tail.max_timestamp:
            tail.max_timestamp, tail.max_timestamp_offset = header.max_timestamp, header.last_offset
        if position - tail.indexed_position > segment.index_interval_bytes:
            tail.index.append(header.last_offset - segment.base_offset, position)
            tail.time_index.append_if_later(tail.max_timestamp, tail.max_timestamp_offset - segment.base_offset)
            tail.indexed_position = position
        if position == 0:
            tail.first_timestamp = header.base_timestamp
        tail.position = position + header.size_in_bytes
        tail.next_offset = header.next_offset

    def _finish(self, result: RecoveredLog, now_ms: int) -> None:
        segment = self.segment
        segment.next_offset = result.end_offset = self.tail.next_offset
        segment.max_timestamp, segment.max_timestamp_offset = self.tail.max_timestamp, self.tail.max_timestamp_offset
        content = self._read(".txnindex") or b""
        aborted = aborted_in_order(content) if content else []
        limit = self.tail.next_offset if self.clean else min(result.checked_from, self.tail.next_offset)
        kept = [transaction for transaction in aborted if transaction.last_offset < limit]
        segment.become_active(self.tail.index, self.tail.time_index, kept)
        segment.stored_aborted = len(kept) if len(kept) * ABORTED_ENTRY_BYTES == len(content) else -1
        if segment.size_bytes:
            first = self.tail.first_timestamp
            if first is None:
                first = _first_timestamp(segment)
            # What the first record says of its time; when it was appended is not known any more.
            segment.first_append_ms = min(now_ms, first) if first >= 0 else now_ms


def _agrees(index: OffsetIndex, segment: Segment) -> bool:
    """Whether a batch that ends with the offset of the last entry stands where that entry says."""
    if not len(index):
        return True
    try:
        _, header = next(segment.headers(index.positions[-1]))
    except CorruptBatch:
        return False
    return header.last_offset - segment.base_offset == index.offsets[-1]


def _first_timestamp(segment: Segment) -> int:
    try:
        _, header = next(segment.headers())
    except CorruptBatch:
        return NO_TIMESTAMP
    return header.base_timestamp


def recover_epochs(stored: list[tuple[int, int]] | None, log: RecoveredLog, cache: LeaderEpochCache) -> None:
    """Bring the leader epochs to the end of the log: what was stored, then what the checked batches say.

    `stored` is None when the file is missing or damaged: then all batches are asked, unless all were checked just now.
    """
    if stored is None and log.checked_from > log.segments[0].base_offset:
        for segment in log.segments:
            try:
                for _, header in segment.headers():
                    if header.partition_leader_epoch > cache.latest:
                        cache.assign(header.partition_leader_epoch, header.base_offset)
            except CorruptBatch as error:
                logger.error("%s: leader epochs behind the damage are not known: %s", segment.path, error)
        return
    for epoch, start in stored or []:
        cache.assign(epoch, start)
    cache.unstored = False
    # What the file says of offsets that were checked may be of batches that a cut has taken: those there now know.
    cache.truncate_from_end(min(log.end_offset, log.checked_from))
    for epoch, start in log.tail_epochs:
        if epoch > cache.latest:
            cache.assign(epoch, start)
