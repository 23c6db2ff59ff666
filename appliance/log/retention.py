"""Which segments have outlived `retention.ms` and `retention.bytes`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RetainedSegment(Protocol):
    """What retention looks at."""

    @property
    def base_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


def expired_end(
    segments: Sequence[RetainedSegment], *, retention_ms: int, retention_bytes: int, now_ms: int, limit: int
) -> int:
    """The offset below which whole segments, from the oldest on, may go; the first base offset if none may.

    - A segment is too old when its largest timestamp is more than `retention_ms` ago; one without timestamps never is.
    - Segments go by size while the rest still has `retention_bytes`; so the log may be larger by less than a segment.
    - Nothing at or above `limit` (the high watermark) goes. The active segment may: the log rolls it first.
    - -1 means no bound.
    """
    if not segments:
        return 0
    end = segments[0].base_offset
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes if retention_bytes >= 0 else -1
    by_size = True
    for segment in segments:
        if segment.next_offset > limit or segment.size_bytes == 0:
            break
        by_size = by_size and surplus >= segment.size_bytes
        if not by_size and not (retention_ms >= 0 and 0 <= segment.max_timestamp < now_ms - retention_ms):
            break
        surplus -= segment.size_bytes
        end = segment.next_offset
    return end
