"""Timers of an event loop, many for each one that the loop itself has to wake up for.

Nearly every timer of a broker is a long poll's and is cancelled: it must cost next to nothing to set and to cancel, and
the loop must not wake for it. So timers that are due in the same slot of time share an entry of the heap, slots of long
waits are wider, and a slot in which nothing lives any more is passed over.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from math import ceil

_log = logging.getLogger(__name__)

LONG_WAIT_MS = 100
"""Waits from this length on are rounded up to `LONG_SLOT_MS`, shorter ones to a millisecond."""

LONG_SLOT_MS = 16

_SWEPT_ABOVE = 1_024
"""With more slots than this, and twice those of the last time, the dead ones are swept out before they are due."""

_ROUNDING_MS = 0.01
"""What a time in seconds may be off in milliseconds."""


class _Slot:
    """Timers that are due together."""

    __slots__ = ("alive", "due_ms", "timers")

    def __init__(self, due_ms: int) -> None:
        self.due_ms = due_ms
        self.timers: list[Timer] = []
        self.alive = 0


class Timer:
    """What `LoopTimers.schedule` gives back."""

    __slots__ = ("callback", "slot")

    def __init__(self, slot: _Slot, callback: Callable[[], None]) -> None:
        self.slot = slot
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            slot = self.slot
            slot.alive -= 1
            if not slot.alive:
                slot.timers.clear()


class LoopTimers:
    """Calls back on the loop's thread, never early; at most one timer of the loop itself is armed at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, _Slot] = {}
        self._heap: list[int] = []
        """When the slots are due."""
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        self._sweep_above = _SWEPT_ABOVE
        self._closed = False

    def __len__(self) -> int:
        return sum(slot.alive for slot in self._slots.values())

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_ms` milliseconds, unless the timer is cancelled before."""
        due_ms = ceil(self._loop.time() * 1000 - _ROUNDING_MS) + (delay_ms if delay_ms > 0 else 0)
        if delay_ms >= LONG_WAIT_MS:
            due_ms += -due_ms % LONG_SLOT_MS
        slot = self._slots.get(due_ms)
        if slot is None:
            slot = self._slots[due_ms] = _Slot(due_ms)
            heapq.heappush(self._heap, due_ms)
            if len(self._heap) > self._sweep_above:
                self._sweep(slot)
        timer = Timer(slot, callback)
        slot.timers.append(timer)
        slot.alive += 1
        if self._armed is None or due_ms < self._armed_for_ms:
            self._arm()
        return timer

    def close(self) -> None:
        """Nothing is called any more."""
        self._closed = True
        self._heap.clear()
        self._slots.clear()
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _sweep(self, new: _Slot) -> None:
        self._slots = {due_ms: slot for due_ms, slot in self._slots.items() if slot.alive or slot is new}
        self._heap = sorted(self._slots)
        self._sweep_above = max(_SWEPT_ABOVE, 2 * len(self._heap))

    def _arm(self) -> None:
        """Let the loop wake for the first slot in which something lives."""
        heap = self._heap
        while heap and not self._slots[heap[0]].alive:
            del self._slots[heapq.heappop(heap)]
        if not heap or self._closed:
            return
        due_ms = heap[0]
        if self._armed is not None:
            if self._armed_for_ms <= due_ms:
                return
            self._armed.cancel()
        self._armed_for_ms = due_ms
        self._armed = self._loop.call_later(max(0.0, due_ms / 1000 - self._loop.time()), self._fire)

    def _fire(self) -> None:
        self._armed = None
        # The loop's own timers are rounded to a millisecond; what is due within that is due.
        now_ms = self._loop.time() * 1000 + 0.5
        heap = self._heap
        due = []
        while heap and heap[0] <= now_ms:
            due.append(self._slots.pop(heapq.heappop(heap)))
        for slot in due:
            for timer in slot.timers:
                callback, timer.callback = timer.callback, None
                if callback is None:
                    continue
                slot.alive -= 1
                try:
                    callback()
                except Exception:
                    _log.exception("a timer failed")
                if self._closed:
                    return
        if self._armed is None:
            self._arm()
