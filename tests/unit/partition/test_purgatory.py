"""Who waits for a partition is told once, whatever becomes of the others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from appliance.base.errors import ErrorCode
from appliance.partition.purgatory import AckPurgatory
from appliance.server.handlers.produce_commit import CommitWait
from appliance.server.requests import Pending


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


class Broken:
    """Somebody who cannot be told."""

    def committed(self) -> None:
        raise RuntimeError("no more")

    def failed(self, error: ErrorCode) -> None:
        raise RuntimeError("no more")


def test_one_who_cannot_be_told_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    purgatory = AckPurgatory()
    for how in (lambda: purgatory.advanced(10), lambda: purgatory.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        other = Waiter()
        purgatory.wait(3, Broken())
        purgatory.wait(4, other)
        how()
        assert other.outcome and len(purgatory) == 0
    assert caplog.text.count("could not be told") == 2


def test_a_wait_has_all_that_the_place_of_an_answer_has() -> None:
    wait = CommitWait(SimpleNamespace(), SimpleNamespace(version=9), 1, SimpleNamespace(), 0, 0, 0)  # type: ignore[arg-type]
    missing = [name for part in (Pending, CommitWait) for name in part.__slots__ if not hasattr(wait, name)]
    assert missing == []
