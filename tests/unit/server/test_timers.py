from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.server.timers import LoopTimers


class Handle:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandLoop:
    """A loop whose time the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Handle:
        handle = Handle(self.now + delay, callback)
        self.handles.append(handle)
        return handle

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [handle for handle in self.handles if handle.due <= self.now and not handle.cancelled]
        self.handles = [handle for handle in self.handles if handle not in due and not handle.cancelled]
        for handle in due:
            handle.callback()

    @property
    def armed(self) -> int:
        return sum(not handle.cancelled for handle in self.handles)


def timers_of(loop: HandLoop) -> LoopTimers:
    fake: Any = loop
    return LoopTimers(fake)


def test_timers_fire_in_the_order_of_their_times() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timers.schedule(300, lambda: fired.append("third"))
    timers.schedule(100, lambda: fired.append("first"))
    timers.schedule(100, lambda: fired.append("second"))
    loop.advance(0.1)
    assert fired == ["first", "second"]
    loop.advance(0.2)
    assert fired == ["first", "second", "third"]


def test_one_timer_of_the_loop_is_armed_at_a_time() -> None:
    loop = HandLoop()
    timers = timers_of(loop)
    for delay_ms in (500, 300, 400, 100):
        timers.schedule(delay_ms, lambda: None)
        assert loop.armed == 1


def test_a_cancelled_timer_does_not_fire() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timer = timers.schedule(100, lambda: fired.append("no"))
    timers.schedule(200, lambda: fired.append("yes"))
    timer.cancel()
    timer.cancel()
    assert len(timers) == 1
    loop.advance(1)
    assert fired == ["yes"]
    assert len(timers) == 0


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = HandLoop()
    timers = timers_of(loop)
    for _ in range(10_000):
        timers.schedule(500_000, lambda: None).cancel()
    assert len(timers._heap) < 1_000


def test_a_timer_that_fails_does_not_stop_the_others() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)

    def fail() -> None:
        raise RuntimeError("on purpose")

    timers.schedule(100, fail)
    timers.schedule(100, lambda: fired.append("after"))
    loop.advance(0.2)
    assert fired == ["after"]


def test_a_timer_may_set_the_next_one() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)

    def again() -> None:
        fired.append(loop.now)
        timers.schedule(100, again)

    timers.schedule(100, again)
    for _ in range(5):
        loop.advance(0.1)
    assert len(fired) == 5


def test_nothing_fires_after_the_end() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timers.schedule(100, lambda: fired.append("no"))
    timers.close()
    loop.advance(1)
    assert fired == []
    assert loop.armed == 0
