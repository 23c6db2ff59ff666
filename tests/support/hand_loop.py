"""What parts on an event loop need, driven by the test's hand: time stands still, helper threads work at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class HandTimer:
    due_ms: int
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class HandClock:
    """Both clocks show the same time."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


class HandBackground:
    """`appliance.base.background.Background`: work runs at once, or with `later` when the test says so."""

    def __init__(self, clock: HandClock, *, later: bool = False) -> None:
        self._clock = clock
        self.later = later
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.timers: list[HandTimer] = []

    def run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.waiting.append((work, done))
        if not self.later:
            self.do_work()

    def do_work(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(self._clock.time_ms + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def advance(self, delta_ms: int) -> None:
        """Let time pass, one timer after the other."""
        end_ms = self._clock.time_ms + delta_ms
        while True:
            due = [timer for timer in self.timers if not timer.cancelled and timer.due_ms <= end_ms]
            if not due:
                break
            timer = min(due, key=lambda each: each.due_ms)
            self.timers.remove(timer)
            self._clock.time_ms = max(self._clock.time_ms, timer.due_ms)
            timer.callback()
        self._clock.time_ms = end_ms
