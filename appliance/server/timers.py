"""Timers of an event loop in one heap, so that a long poll costs a heap entry and not a timer of the loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

_COMPACT_ABOVE = 256
"""Cancelled entries are swept out when there are more of them than this, and more than half of the heap."""


class HeapTimer:
    """One entry of the heap. Cancelling is cheap: the entry stays until it is due or the heap is swept."""

    __slots__ = ("_timers", "callback", "due", "sequence")

    def __init__(self, timers: LoopTimers, due: float, sequence: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.due = due
        self.sequence = sequence
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: HeapTimer) -> bool:
        return (self.due, self.sequence) < (other.due, other.sequence)

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._timers.one_cancelled()


class LoopTimers:
    """Calls back on the loop's thread; at most one timer of the loop itself is armed at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[HeapTimer] = []
        self._sequence = 0
        self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> HeapTimer:
        """Call `callback` after `delay_ms` milliseconds, unless the timer is cancelled before."""
        self._sequence += 1
        timer = HeapTimer(self, self._loop.time() + max(0, delay_ms) / 1000, self._sequence, callback)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._arm()
        return timer

    def one_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer.callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Nothing is called any more."""
        self._closed = True
        self._heap.clear()
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self) -> None:
        due = self._heap[0].due
        if self._armed is not None:
            if self._armed_for <= due:
                return
            self._armed.cancel()
        self._armed_for = due
        self._armed = self._loop.call_later(max(0.0, due - self._loop.time()), self._fire)

    def _fire(self) -> None:
        self._armed = None
        # The loop's own timers are rounded to a millisecond; what is due within that is due.
        now = self._loop.time() + 0.0005
        while self._heap and self._heap[0].due <= now and not self._closed:
            timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
                continue
            try:
                callback()
            except Exception:
                _log.exception("a timer failed")
        if self._heap and not self._closed:
            self._arm()
