"""Early write-back: the kernel is told to begin writing dirty pages while there are few of them.

Left to itself it lets gigabytes gather, then flushes them in one go, and above a limit it makes whoever writes wait
(`vm.dirty_ratio`): that would be the loop. Nothing here waits for the disk, and nothing becomes durable by it: errors
are found by the next fsync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from appliance.log.segment import Segment

NEVER = 1 << 62
RANGES_MAX = 1_024
"""Ranges that wait for the helper thread; what comes beyond that is left to the kernel."""
_TAIL_ALIGNMENT = 1 << 16
"""The last pages are still being appended to; some file systems let no one write to a page on its way to the disk."""


class WriteBack:
    """Which ranges of segments should go to the disk early. `want` and `take` are called on the loop's thread."""

    def __init__(self, step_bytes: int = 0) -> None:
        self.step_bytes = step_bytes
        """How much of a segment is asked for at a time; 0: nothing ever."""
        self._wanted: list[tuple[Segment, int, int]] = []

    def first_position(self, size_bytes: int) -> int:
        """Where an append to a segment of this size should ask for the first time."""
        return size_bytes + self.step_bytes if self.step_bytes else NEVER

    def want(self, segment: Segment, position: int) -> int:
        """Everything before `position` is, or will be in this tick, in the page cache; returns where to ask next."""
        end = position - position % _TAIL_ALIGNMENT
        start = max(0, end - self.step_bytes - _TAIL_ALIGNMENT)
        if len(self._wanted) < RANGES_MAX:
            self._wanted.append((segment, start, end))
        return position + self.step_bytes

    def take(self) -> WriteBackJob | None:
        """The work that has gathered; None if there is none."""
        wanted, self._wanted = self._wanted, []
        ranges = [each for each in wanted if each[0].descriptor >= 0]
        return WriteBackJob(ranges) if ranges else None


class WriteBackJob:
    """Ranges of segments that stay open for it. `run` in a helper thread, then `release` on the loop's."""

    def __init__(self, ranges: list[tuple[Segment, int, int]]) -> None:
        self._ranges = ranges
        for segment, _, _ in ranges:
            segment.retain()

    def run(self) -> None:
        """Tell the kernel. Waits where the disk's queue is full."""
        for segment, start, end in self._ranges:
            segment.disk.start_writeback(segment.descriptor, start, end - start)

    def release(self) -> None:
        for segment, _, _ in self._ranges:
            segment.release()
