"""Which log is cleaned next, how far, and which of its segments become one. Pure.

A log consists of a clean part, which an earlier round has gone through, and a dirty part behind it:

```
log start      first dirty offset      first uncleanable offset      log end
    |  clean bytes   |    cleanable bytes        |   not touched        |
```
Rules as in Apache Kafka 4.3:
- Only whole segments are cleaned, never the active one, nor from the first on that reaches above the last stable offset
  or has a record younger than `min.compaction.lag.ms`. Ours on top: nor what is not known to be durable.
- A log is due when its share of cleanable bytes is above `min.cleanable.dirty.ratio`, or when its oldest dirty record
  has waited longer than `max.compaction.lag.ms`. The one with the largest share comes first.
- Neighbours become one segment while they fit into `segment.bytes` and `segment.index.bytes`, and their offsets into
  31 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from appliance.log.scan import RELATIVE_OFFSET_MAX

SEGMENTS_PER_GROUP_MAX = 64
"""Segments that become one at once: each costs the loop a few renames when it is replaced."""


class DirtySegment(Protocol):
    """What is asked of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def first_batch_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What a round of cleaning would find in one log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int
    """By how much max.compaction.lag.ms is exceeded; 0 if it is not."""

    @property
    def ratio(self) -> float:
        """The share of the cleanable part that is dirty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        return self.cleanable_bytes > 0 and (self.ratio > min_ratio or self.delay_ms > 0)


def cleanable_part(
    closed: Sequence[DirtySegment],
    *,
    cleaned_offset: int,
    log_start_offset: int,
    log_end_offset: int,
    stable_offset: int,
    min_compaction_lag_ms: int,
    max_compaction_lag_ms: int,
    now_ms: int,
) -> Cleanable:
    """Where the dirty part of a log begins and ends.

    Args:
        closed: every segment but the active one, oldest first.
        cleaned_offset: up to where the last round went; -1 if there was none.
        stable_offset: a segment that reaches above it is not touched.
    """
    first_dirty = cleaned_offset
    if not log_start_offset <= first_dirty <= log_end_offset:
        first_dirty = log_start_offset
    first_uncleanable = log_start_offset
    for segment in closed:
        if segment.next_offset > stable_offset:
            break
        # Asked only where it matters: it may have to read a file.
        is_asked = min_compaction_lag_ms > 0 and segment.next_offset > first_dirty
        if is_asked and segment.max_timestamp > now_ms - min_compaction_lag_ms:
            break
        first_uncleanable = segment.next_offset
    first_uncleanable = max(first_uncleanable, first_dirty)
    clean_bytes = cleanable_bytes = 0
    delay_ms = 0
    for segment in closed:
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size_bytes
        elif segment.base_offset < first_uncleanable:
            cleanable_bytes += segment.size_bytes
        if segment.next_offset > first_dirty and segment.first_batch_timestamp > 0:
            delay_ms = max(delay_ms, now_ms - max_compaction_lag_ms - segment.first_batch_timestamp)
    return Cleanable(first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, delay_ms)


Log = TypeVar("Log")


def filthiest(logs: Iterable[tuple[Log, Cleanable, float]]) -> tuple[Log, Cleanable] | None:
    """Of (log, what could be cleaned, min.cleanable.dirty.ratio) the due one with the largest dirty share."""
    best: tuple[Log, Cleanable] | None = None
    for log, cleanable, min_ratio in logs:
        if cleanable.is_due(min_ratio) and (best is None or cleanable.ratio > best[1].ratio):
            best = log, cleanable
    return best


class SourceSegment(NamedTuple):
    """A segment as the cleaning helper knows it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int = 0
    """Of its offset index and of its time index, whichever is larger."""


def group_segments(
    segments: Sequence[SourceSegment],
    *,
    segment_bytes: int,
    index_bytes: int,
    segments_max: int = SEGMENTS_PER_GROUP_MAX,
) -> list[list[SourceSegment]]:
    """Neighbours that become one segment each."""
    groups: list[list[SourceSegment]] = []
    size = index_size = 0
    for segment in segments:
        if groups:
            group = groups[-1]
            size += segment.size_bytes
            index_size += segment.index_bytes
            # An empty one may join from any distance, or one would stay behind for every 2^31 records.
            near = segment.size_bytes == 0 or segment.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
            if size <= segment_bytes and index_size <= index_bytes and near and len(group) < segments_max:
                group.append(segment)
                continue
        groups.append([segment])
        size, index_size = segment.size_bytes, segment.index_bytes
    return groups
