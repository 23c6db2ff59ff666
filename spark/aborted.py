"""Which batches a read_committed reader leaves out. Pure.

Both tiers list the aborted transactions that overlap what they hand out: a broker's answer says where each began, an
object's tail also where it ended. Where the end is not said, the producer's next marker is it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from appliance.records.batch import BatchHeader

UNTIL_ITS_MARKER = (1 << 63) - 1


class AbortedRange(NamedTuple):
    """Records of this producer in [first_offset, last_offset] do not count; the last is the marker's offset."""

    producer_id: int
    first_offset: int
    last_offset: int = UNTIL_ITS_MARKER


NOBODY_ABORTED: tuple[AbortedRange, ...] = ()


class AbortedFilter:
    """Sees the batches of one partition in offset order."""

    def __init__(self) -> None:
        self._ranges: dict[int, set[AbortedRange]] = {}
        self._ended_at: dict[int, int] = {}

    def learn(self, aborted: Iterable[AbortedRange]) -> None:
        """More aborted transactions; those that are known may be told again."""
        for entry in aborted:
            self._ranges.setdefault(entry.producer_id, set()).add(entry)

    def drops(self, header: BatchHeader) -> bool:
        """Whether the batch holds no rows for a reader: control records, or records of an aborted transaction."""
        if header.is_control:
            if header.producer_id in self._ranges:
                self._ended_at[header.producer_id] = header.base_offset
                self._forget(header.producer_id, header.base_offset)
            return True
        if not header.is_transactional:
            return False
        ended_at = self._ended_at.get(header.producer_id, -1)
        return any(
            ended_at < entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in self._ranges.get(header.producer_id, ())
        )

    def _forget(self, producer_id: int, marker_offset: int) -> None:
        """Drop the ranges that the marker ends: a long read would collect all of them."""
        self._ranges[producer_id] = {entry for entry in self._ranges[producer_id] if entry.first_offset > marker_offset}
