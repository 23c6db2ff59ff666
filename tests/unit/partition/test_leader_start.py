from __future__ import annotations

from appliance.partition.leader_start import BrokerView, Earlier, LeaderStart, Waits

QUIET_MS = 2_500
LIVING = BrokerView(broker_epoch=7, fenced=False, dead=False)


def start_after(*earlier: Earlier, fetched: dict[int, int] | None = None) -> LeaderStart:
    return LeaderStart(4, QUIET_MS, fetched or {}, began_ms=0, earlier=earlier)


def test_a_leader_without_earlier_ones_begins_at_once() -> None:
    assert start_after().waits({1: LIVING}, 0).over


def test_a_living_earlier_leader_is_asked_until_it_answers() -> None:
    start = start_after(Earlier(1, 7, True))
    assert start.waits({1: LIVING}, 99_000) == Waits(ask=(1,), wait_ms=0)
    start.answered.add(1)
    assert start.waits({1: LIVING}, 99_000).over


def test_one_whose_lease_is_over_has_to_be_left_without_fetches_for_a_lease_and_margin() -> None:
    start = start_after(Earlier(1, 7, False), fetched={1: 1_000})
    fenced = {1: LIVING._replace(fenced=True)}
    assert start.waits(fenced, 1_200) == Waits(ask=(), wait_ms=2_300)
    assert start.waits(fenced, 3_500).over


def test_a_living_one_that_was_fenced_since_is_waited_for() -> None:
    start = start_after(Earlier(1, 7, True), fetched={1: 1_000})
    assert start.waits({1: LIVING._replace(fenced=True)}, 1_500) == Waits((), 2_000)


def test_a_process_that_never_fetched_may_have_had_a_predecessor_that_did() -> None:
    assert start_after(Earlier(1, 7, False)).waits({1: LIVING._replace(fenced=True)}, 500) == Waits((), 2_000)


def test_who_has_registered_anew_or_is_dead_or_gone_is_quiet() -> None:
    start = start_after(Earlier(1, 7, True))
    assert start.waits({1: LIVING._replace(broker_epoch=8)}, 0).over
    assert start.waits({1: LIVING._replace(fenced=True, dead=True)}, 0).over
    assert start.waits({}, 0).over


def test_every_one_of_several_has_to_be_quiet() -> None:
    start = start_after(Earlier(1, 7, True), Earlier(2, 7, False), fetched={2: 0})
    brokers = {1: LIVING, 2: LIVING._replace(fenced=True)}
    assert start.waits(brokers, 500) == Waits((1,), 2_000)
    start.follow([Earlier(1, 7, True)])
    assert start.waits(brokers, 500) == Waits((1,), 0)
