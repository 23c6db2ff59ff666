from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.server.timers import LONG_SLOT_MS, LONG_WAIT_MS, LoopTimers


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
    timers.schedule(30, lambda: fired.append("third"))
    timers.schedule(10, lambda: fired.append("first"))
    timers.schedule(10, lambda: fired.append("second"))
    loop.advance(0.009)
    assert fired == []
    loop.advance(0.001)
    assert fired == ["first", "second"]
    loop.advance(0.02)
    assert fired == ["first", "second", "third"]


def test_long_waits_are_a_little_longer_never_shorter() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    for delay_ms in range(LONG_WAIT_MS, LONG_WAIT_MS + 50):
        timers.schedule(delay_ms, lambda due=loop.now + delay_ms / 1000: fired.append(loop.now - due))  # type: ignore[misc]
    for _ in range(LONG_WAIT_MS + 100):
        loop.advance(0.001)
    assert len(fired) == 50
    assert min(fired) > -1e-9 and max(fired) <= LONG_SLOT_MS / 1000 + 1e-9


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


def test_slots_in_which_nothing_lives_do_not_pile_up_either() -> None:
    loop = HandLoop()
    timers = timers_of(loop)
    for _ in range(10_000):
        timers.schedule(500_000, lambda: None).cancel()
        loop.now += 0.02
    assert len(timers._heap) < 3_000


def test_the_loop_is_not_woken_for_what_was_cancelled_before_it_was_armed_for_it() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timers.schedule(10, lambda: fired.append("first"))
    for delay_ms in range(20, 60):
        timers.schedule(delay_ms, lambda: fired.append("no")).cancel()
    timers.schedule(70, lambda: fired.append("last"))
    loop.advance(0.01)
    assert [round(handle.due, 3) for handle in loop.handles] == [100.07]
    loop.advance(0.06)
    assert fired == ["first", "last"]


def test_a_timer_may_cancel_others_that_are_due_with_it() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timers.schedule(10, lambda: [timer.cancel() for timer in others])
    others = [timers.schedule(delay_ms, lambda: fired.append("no")) for delay_ms in (10, 10, 11)]
    timers.schedule(12, lambda: fired.append("yes"))
    loop.advance(0.05)
    assert fired == ["yes"]
    assert len(timers) == 0


def test_a_timer_without_a_wait_lets_the_loop_go_on() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)

    def again() -> None:
        fired.append(loop.now)
        timers.schedule(0, again)

    timers.schedule(0, again)
    for _ in range(3):
        loop.advance(0.0)
    assert len(fired) == 3


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
        timers.schedule(10, again)

    timers.schedule(10, again)
    for _ in range(5):
        loop.advance(0.01)
    assert len(fired) == 5


def test_nothing_fires_after_the_end() -> None:
    loop, fired = HandLoop(), []
    timers = timers_of(loop)
    timers.schedule(100, lambda: fired.append("no"))
    timers.close()
    loop.advance(1)
    assert fired == []
    assert loop.armed == 0
