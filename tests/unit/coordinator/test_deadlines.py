from __future__ import annotations

from appliance.coordinator.deadlines import Deadlines


def due(deadlines: Deadlines[str, str], now_ms: int) -> list[str]:
    events = []
    while (event := deadlines.pop_due(now_ms)) is not None:
        events.append(event)
    return events


def test_what_is_due_comes_in_its_order_and_once() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("b", 20, "B")
    deadlines.set("a", 10, "A")
    deadlines.set("c", 30, "C")
    assert deadlines.next_due_ms() == 10
    assert due(deadlines, 9) == []
    assert due(deadlines, 20) == ["A", "B"]
    assert due(deadlines, 20) == []
    assert deadlines.next_due_ms() == 30
    assert len(deadlines) == 1


def test_a_deadline_that_was_moved_later_is_due_later() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("a", 10, "early")
    deadlines.set("a", 50, "late")
    assert due(deadlines, 49) == []
    assert deadlines.next_due_ms() == 50
    assert due(deadlines, 50) == ["late"]


def test_it_can_be_asked_when_something_is_due() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("a", 10, "early")
    deadlines.set("a", 50, "late")
    assert (deadlines.due_ms("a"), deadlines.due_ms("b")) == (50, None)
    deadlines.cancel("a")
    assert deadlines.due_ms("a") is None


def test_a_deadline_that_was_moved_earlier_is_due_earlier_and_once() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("a", 50, "late")
    deadlines.set("a", 10, "early")
    assert due(deadlines, 10) == ["early"]
    assert due(deadlines, 100) == []
    assert deadlines.next_due_ms() is None


def test_a_cancelled_deadline_never_comes() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("a", 10, "A")
    deadlines.cancel("a")
    deadlines.cancel("nothing")
    assert "a" not in deadlines
    assert deadlines.next_due_ms() is None
    assert due(deadlines, 100) == []


def test_a_deadline_may_be_set_again_after_it_was_cancelled_or_due() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    deadlines.set("a", 10, "first")
    deadlines.cancel("a")
    deadlines.set("a", 20, "second")
    assert due(deadlines, 15) == []
    assert due(deadlines, 20) == ["second"]
    deadlines.set("a", 30, "third")
    assert due(deadlines, 30) == ["third"]


def test_heartbeats_do_not_make_the_heap_grow() -> None:
    deadlines: Deadlines[str, str] = Deadlines()
    for now_ms in range(10_000):
        deadlines.set("member", now_ms + 1_000, "gone")
        assert due(deadlines, now_ms) == []
    assert len(deadlines._heap) == 1
