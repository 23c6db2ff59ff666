"""Reads from the segments of a log: slices to send, batches to open, offsets by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from appliance.base.disk import Pages
from appliance.log.log_slice import LogSlice
from appliance.log.open_files import SegmentGone
from appliance.log.segment import Segment
from appliance.records.batch import check_batch
from appliance.records.errors import CorruptBatch
from appliance.records.reader import read_records

REPLACED_TRIES_MAX = 100
"""How often a search in a helper thread begins anew because compaction was faster."""


class OffsetAndTimestamp(NamedTuple):
    """A record's place and time."""

    offset: int
    timestamp: int


def segment_at(segments: Sequence[Segment], offset: int) -> int:
    """The number of the segment whose range holds `offset`; 0 if it lies below all."""
    return max(0, bisect_right(segments, offset, key=_base_offset) - 1)


def read_slice(
    segments: Sequence[Segment],
    offset: int,
    max_bytes: int,
    max_offset: int,
    min_one_batch: bool,
    pages: Pages | None = None,
) -> LogSlice | None:
    """Whole batches from the one that holds `offset` on, from one segment, none of them at or above `max_offset`.

    None when there is nothing yet between `offset` and `max_offset`, or the first batch is larger than `max_bytes` and
    `min_one_batch` is not set.

    Raises:
        CorruptBatch: damage lies between the nearest index entry and the batch.
        WouldWait: with `pages`, if the disk has to be read to find the batches.
    """
    last = len(segments) - 1
    segment = segments[last]
    number = last if offset >= segment.base_offset else segment_at(segments, offset)
    while number <= last and segments[number].base_offset < max_offset:
        segment = segments[number]
        try:
            position = segment.position_of(offset, pages)
            end = segment.size_bytes if max_offset >= segment.next_offset else segment.position_of(max_offset, pages)
            if position < end:
                cut = segment.end_of_slice(position, position + max_bytes, end, min_one_batch, pages)
        except CorruptBatch:
            segment.suspect_damage()
            raise
        if position < end:
            if cut == position:
                return None
            if cut == end:
                segment.remember_boundary(min(max_offset, segment.next_offset), end)
            return LogSlice(segment, position, cut - position, offset)
        # Compaction may have removed all there was between the offset and the segment's end.
        number += 1
    return None


def iterate_batches(segments: Sequence[Segment], from_offset: int, end_offset: int) -> Iterator[memoryview]:
    """Whole batches from the one that holds `from_offset` to the one before `end_offset`, crc checked.

    Follows the log when compaction replaces segments meanwhile.

    Raises:
        CorruptBatch: while iterating, at damage.
        SegmentGone: retention was faster.
    """
    offset = from_offset
    tries_left = REPLACED_TRIES_MAX
    while offset < end_offset:
        present = list(segments)
        segment = present[segment_at(present, offset)]
        if segment.base_offset >= end_offset:
            return
        if segment.base_offset > offset:
            raise SegmentGone(f"retention has taken offset {offset} from the log")
        is_last = segment is present[-1]
        segment.retain()
        try:
            for _, header, batch in segment.batches(segment.position_of(offset)):
                if header.base_offset >= end_offset:
                    return
                yield batch
                offset = header.next_offset
            if is_last:
                return
            offset = max(offset, segment.next_offset)
        except SegmentGone:
            tries_left -= 1
            if not tries_left:
                raise
        except CorruptBatch:
            segment.suspect_damage()
            raise
        finally:
            segment.release()


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp: int, start_offset: int, end_offset: int
) -> OffsetAndTimestamp | None:
    """The first record in [start_offset, end_offset) with this timestamp or a later one. May read and unpack batches.

    Raises:
        CorruptBatch: damage lies on the way.
    """
    return _again_when_replaced(lambda: _first_since(list(segments), timestamp, start_offset, end_offset))


def _again_when_replaced(search: Callable[[], OffsetAndTimestamp | None]) -> OffsetAndTimestamp | None:
    """Search in a helper thread, while the log's own thread may replace or delete segments."""
    for _ in range(REPLACED_TRIES_MAX - 1):
        try:
            return search()
        except SegmentGone:
            continue
    return search()


def _first_since(
    segments: list[Segment], timestamp: int, start_offset: int, end_offset: int
) -> OffsetAndTimestamp | None:
    for segment in segments:
        if segment.next_offset <= start_offset or segment.max_timestamp < timestamp:
            continue
        if segment.base_offset >= end_offset:
            return None
        segment.retain()
        try:
            found = _find_time(segment, timestamp, start_offset)
        except CorruptBatch:
            segment.suspect_damage()
            raise
        finally:
            segment.release()
        if found is not None:
            return found if found.offset < end_offset else None
    return None


def _find_time(segment: Segment, timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    offset = segment.base_offset + segment.time_index.offset_before(timestamp)
    position = segment.position_of(max(offset, start_offset))
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp:
            continue
        batch = segment.disk.pread(segment.open(), header.size_in_bytes, at)
        check_batch(batch)
        for record in read_records(batch):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return OffsetAndTimestamp(record.offset, record.timestamp)
    return None


def offset_of_max_timestamp(segments: Sequence[Segment], end_offset: int) -> OffsetAndTimestamp | None:
    """The first record below `end_offset` that has the largest timestamp (ListOffsets with -3)."""
    return _again_when_replaced(lambda: _latest_of_all(list(segments), end_offset))


def _latest_of_all(segments: list[Segment], end_offset: int) -> OffsetAndTimestamp | None:
    latest, holder = _largest(segments, end_offset, lambda segment: segment.max_timestamp)
    if holder is None:
        return None
    found = _first_since([holder], latest, holder.base_offset, end_offset)
    if found is not None:
        return found
    # A batch that compaction has emptied keeps its timestamp: ask only those that have records.
    latest, holder = _largest(segments, end_offset, lambda segment: _latest_below(segment, segment.next_offset))
    return None if holder is None else _first_since([holder], latest, holder.base_offset, end_offset)


def _largest(
    segments: list[Segment], end_offset: int, largest_of: Callable[[Segment], int]
) -> tuple[int, Segment | None]:
    """The largest timestamp below an offset, and the first segment that has it."""
    latest, holder = -1, None
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        segment.retain()
        try:
            is_whole = segment.next_offset <= end_offset
            timestamp = largest_of(segment) if is_whole else _latest_below(segment, end_offset)
        finally:
            segment.release()
        if timestamp > latest:
            latest, holder = timestamp, segment
    return latest, holder


def _latest_below(segment: Segment, end_offset: int) -> int:
    """The largest timestamp in the batches of a segment that begin below an offset and have records."""
    latest = -1
    for _, header in segment.headers(0, segment.position_of(end_offset)):
        if header.record_count:
            latest = max(latest, header.max_timestamp)
    return latest


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
