"""Damage in a closed segment, mended with the same batches from elsewhere: a replica, or the tier.

Runs in a helper thread. What can be read of the old file is copied, each damaged range is filled with batches that
somebody else has, and the new files wait as `….cleaned` to take the place of the old ones (`replacement.py`). Nothing
is ever left out: where the copy elsewhere does not fit, the old segment stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from appliance.base.disk import Disk
from appliance.log.cleaned_file import CleanedFile
from appliance.log.damage import DamagedRange
from appliance.log.scan import walk_batches
from appliance.log.segment import Segment
from appliance.log.segment_swap import CleanedSegment, discard
from appliance.records.batch import HEADER_BYTES, check_batch, parse_header, split_batches
from appliance.records.control import read_marker
from appliance.records.errors import CorruptBatch

ReadElsewhere = Callable[[int, int], bytes]
"""(offset, end) to whole batches from the one on that holds `offset`; empty when nothing is there."""


class NotRepaired(Exception):
    """What is elsewhere does not fit into the hole; nothing has changed."""


class SegmentRepair:
    """One closed, retained segment and its damaged ranges.

    Args:
        disk: of the segment.
        ranges: what `damaged_ranges` found, in order.
        dense: whether offsets have no holes in this log: it is not, and never was, compacted.
        read: where the lost batches come from.
    """

    def __init__(
        self, disk: Disk, segment: Segment, ranges: Sequence[DamagedRange], read: ReadElsewhere, *, dense: bool
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._ranges = ranges
        self._read = read
        self._dense = dense
        self._target = CleanedFile(disk, segment.directory, segment.base_offset, segment.index_interval_bytes)

    def run(self) -> CleanedSegment:
        """Write the whole segment anew, durably. Blocks.

        Raises:
            NotRepaired: what came from elsewhere does not fit. OSError: the disk refuses, or whoever is to be read.
            CorruptBatch: the transaction index is damaged, too. Nothing is left behind in each case.
        """
        segment, target = self._segment, self._target
        try:
            target.open()
            target.aborted = list(segment.aborted)
            position, expected = 0, segment.base_offset
            for start, end_position in self._holes():
                self._copy(position, expected, until=start)
                position, expected = end_position, self._offset_at(end_position)
                self._fill(start, expected)
            self._copy(position, expected, until=None)
            target.write()
            cleaned = target.finish([segment.base_offset])
        except BaseException:
            target.close()
            discard(self._disk, segment.directory, segment.base_offset)
            raise
        target.close()
        return cleaned

    def _holes(self) -> list[tuple[int, int]]:
        """(first lost offset, position behind the damage); damage that follows on damage is one hole."""
        holes: list[tuple[int, int]] = []
        end_offset = -1
        for damaged in self._ranges:
            if damaged.start_offset == end_offset:
                holes[-1] = (holes[-1][0], damaged.end_position)
            else:
                holes.append((damaged.start_offset, damaged.end_position))
            end_offset = damaged.end_offset
        return holes

    def _offset_at(self, position: int) -> int:
        """Where the batch begins that stands there: the damaged header before it may not tell the truth of its end."""
        segment = self._segment
        if position >= segment.size_bytes:
            return segment.next_offset
        return parse_header(self._disk.pread(segment.open(), HEADER_BYTES, position)).base_offset

    def _copy(self, position: int, expected: int, until: int | None) -> None:
        """Take over what can be read from `position` on; it must end where the damage is known to begin."""
        segment = self._segment
        try:
            for _, header, batch in walk_batches(self._disk, segment.open(), position, segment.size_bytes, expected):
                self._target.append(header, header.max_timestamp, batch)
                expected = header.next_offset
        except CorruptBatch as error:
            if expected != until:
                raise NotRepaired(f"there is more damage than was known, at offset {expected}: {error}") from None
            return
        if until is not None:
            raise NotRepaired(f"offset {until} can be read again")

    def _fill(self, offset: int, end: int) -> None:
        while offset < end:
            before = offset
            for batch in split_batches(self._read(offset, end)):
                header = check_batch(batch)
                if header.last_offset < offset:
                    continue
                if header.base_offset >= end:
                    if self._dense and offset < end:
                        raise NotRepaired(f"offsets {offset} to {end - 1} are missing there too")
                    offset = end
                    break
                if header.base_offset < offset or header.last_offset >= end:
                    raise NotRepaired(f"the batch there has offsets {header.base_offset} to {header.last_offset}")
                if self._dense and header.base_offset != offset:
                    raise NotRepaired(f"offsets {offset} to {header.base_offset - 1} are missing there too")
                self._check_marker(batch, header.base_offset, is_control=header.is_control)
                self._target.append(header, header.max_timestamp, bytes(batch))
                offset = header.next_offset
            if offset == before:
                raise NotRepaired(f"nothing is there at offset {offset}")

    def _check_marker(self, batch: memoryview, offset: int, *, is_control: bool) -> None:
        """The index, which was not damaged with the data, must know of each abort: readers learn of it there."""
        marker = read_marker(batch) if is_control else None
        if marker is None or marker.is_commit:
            return
        if all(transaction.last_offset != offset for transaction in self._target.aborted):
            raise NotRepaired(f"the transaction index does not know of the abort at offset {offset}")
