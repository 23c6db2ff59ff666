from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.partition.purgatory import AckPurgatory


class Waiter:
    def __init__(self) -> None:
        self.outcome = ""

    def committed(self) -> None:
        self.outcome += "committed"

    def failed(self, error: ErrorCode) -> None:
        self.outcome += error.name


def test_waiters_are_served_when_the_high_watermark_reaches_them() -> None:
    purgatory = AckPurgatory()
    first, second = Waiter(), Waiter()
    purgatory.wait(10, first)
    purgatory.wait(20, second)
    purgatory.advanced(9)
    assert (first.outcome, second.outcome) == ("", "")
    purgatory.advanced(10)
    assert (first.outcome, second.outcome) == ("committed", "")
    purgatory.advanced(25)
    assert (first.outcome, second.outcome) == ("committed", "committed")
    assert len(purgatory) == 0


def test_all_fail_once_when_the_leader_steps_down() -> None:
    purgatory = AckPurgatory()
    waiter = Waiter()
    purgatory.wait(10, waiter)
    purgatory.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    purgatory.advanced(10)
    assert waiter.outcome == "NOT_LEADER_OR_FOLLOWER"
