"""Damage in a broker's logs: suspected by whoever reads, looked into by a helper thread, told by `appliance status`.

Damage below the recovery point is never cut. Reads of it answer CORRUPT_MESSAGE, reads before and behind it go on.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from appliance.log.scan import walk_batches, walk_headers
from appliance.records.errors import CorruptBatch

if TYPE_CHECKING:
    from appliance.log.segment import Segment

logger = logging.getLogger(__name__)

RANGES_MAX = 100
"""Places in one segment that are told apart; what lies behind them counts as one."""


class DamagedRange(NamedTuple):
    """Offsets [start, end) that cannot be read, and why."""

    start_offset: int
    end_offset: int
    reason: str
    end_position: int
    """Where in the file the next batch begins that can be read."""


class DamageBook:
    """Of all logs of a broker. Any thread may suspect; the loop's thread does the rest."""

    def __init__(self) -> None:
        self._suspects: deque[Segment] = deque()
        self._found: dict[tuple[Path, int], tuple[DamagedRange, ...]] = {}

    def suspect(self, segment: Segment) -> None:
        """A read found damage in this segment: look into it soon, once."""
        if (segment.directory, segment.base_offset) not in self._found and segment not in self._suspects:
            self._suspects.append(segment)

    @property
    def has_suspects(self) -> bool:
        return bool(self._suspects)

    @property
    def is_empty(self) -> bool:
        """Whether no damage is known."""
        return not self._found

    def take_suspects(self) -> list[Segment]:
        """Those that should be looked into now."""
        taken: list[Segment] = []
        while self._suspects:
            segment = self._suspects.popleft()
            if not segment.is_gone and segment not in taken:
                taken.append(segment)
        return taken

    def found(self, segment: Segment, ranges: list[DamagedRange]) -> None:
        """What `damaged_ranges` says of a segment."""
        if segment.is_gone:
            return
        self._found[segment.directory, segment.base_offset] = tuple(ranges)
        if ranges:
            segment.is_damaged = True
            for each in ranges:
                logger.error(
                    "%s: offsets %d to %d are damaged: %s",
                    segment.path,
                    each.start_offset,
                    each.end_offset - 1,
                    each.reason,
                )

    def known(self) -> dict[tuple[Path, int], tuple[DamagedRange, ...]]:
        """Damaged ranges by folder and base offset of the segment."""
        return {place: ranges for place, ranges in self._found.items() if ranges}

    def of_segment(self, segment: Segment) -> tuple[DamagedRange, ...]:
        return self._found.get((segment.directory, segment.base_offset), ())

    def covers(self, segment: Segment, offset: int) -> DamagedRange | None:
        """The known damage that an offset lies in."""
        return next((each for each in self.of_segment(segment) if each.start_offset <= offset < each.end_offset), None)

    def way_around(self, segment: Segment, offset: int) -> int:
        """A position in the file behind all known damage below an offset; 0 if there is none."""
        ends = (each.end_position for each in self.of_segment(segment) if each.end_offset <= offset)
        return max(ends, default=0)

    def forget(self, segment: Segment) -> None:
        """The segment is no longer part of its log."""
        self._found.pop((segment.directory, segment.base_offset), None)


def damaged_ranges(segment: Segment) -> list[DamagedRange]:
    """Read every batch of a retained segment and name what cannot be read. Blocks.

    Where a header is damaged, the way goes on at the next entry of the index that fits.

    Raises:
        OSError: the disk fails.
    """
    ranges: list[DamagedRange] = []
    position, expected, end = 0, segment.base_offset, segment.size_bytes
    while position < end:
        try:
            for at, header, _ in walk_batches(segment.disk, segment.open(), position, end, expected):
                position, expected = at + header.size_in_bytes, header.next_offset
            return ranges
        except CorruptBatch as error:
            position, behind = _way_on(segment, position, expected, end)
            if len(ranges) == RANGES_MAX:
                position, behind = end, segment.next_offset
            ranges.append(DamagedRange(expected, behind, error.message or "damaged", position))
            expected = behind
    return ranges


def _way_on(segment: Segment, position: int, expected: int, end: int) -> tuple[int, int]:
    """Where batches can be read again behind the damage at `position`, and the offset there."""
    descriptor = segment.open()
    try:
        # The records may be damaged, and the header not: no crc covers the offsets, but the walk compares them.
        headers = walk_headers(segment.disk, descriptor, position, end, expected)
        _, damaged = next(headers)
        following = position + damaged.size_in_bytes
        if following == end:
            return end, segment.next_offset
        next(headers)
        return following, damaged.next_offset
    except (CorruptBatch, StopIteration):
        pass
    for entry, offset in zip(segment.index.positions, segment.index.offsets, strict=True):
        if position < entry < end:
            try:
                _, header = next(walk_headers(segment.disk, descriptor, entry, end, expected))
            except CorruptBatch:
                continue
            if header.last_offset - segment.base_offset == offset:
                return entry, header.base_offset
    return end, segment.next_offset
