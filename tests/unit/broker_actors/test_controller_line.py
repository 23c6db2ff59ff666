"""What the threads of a controller channel share."""

from __future__ import annotations

from pathlib import Path

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.broker_actors.controller_caller import says_not_controller
from appliance.broker_actors.controller_follower import changed_topics
from appliance.broker_actors.controller_line import RECONNECT_BACKOFF_MAX_MS, BrokerIdentity, ControllerLine
from appliance.controller.records import TopicConfigSet, TopicCreated, TopicDeleted
from appliance.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from appliance.wire.messages.internal_metadata import BrokerLeaseResponse, ControllerStatusResponse
from tests.support.metadata import after, cluster, incarnation


class StillClock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


def line(data_dir: Path | None = None, *controllers: str) -> ControllerLine:
    return ControllerLine(
        controllers or ("a:1", "b:2"), BrokerIdentity(1, (), data_dir=data_dir), StillClock(), SeededRandomness(1)
    )


def test_the_epoch_is_noted_for_the_next_process(tmp_path: Path) -> None:
    first = line(tmp_path)
    assert first.previous_broker_epoch == -1
    first.registered(77)
    assert line(tmp_path).previous_broker_epoch == 77
    assert line(tmp_path).broker_epoch == -1


def test_a_note_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "1\n", "2\n77\n", "1\nx\n", "\xff"):
        (tmp_path / "broker-epoch").write_text(text, encoding="latin-1")
        assert line(tmp_path).previous_broker_epoch == -1


def test_a_lease_is_valid_before_its_end_only() -> None:
    shared = line()
    shared.registered(7)
    assert not shared.lease_valid(0)
    shared.lease_granted(7, 2_000, firm=True)
    assert (shared.lease_valid(1_999), shared.lease_valid(2_000)) == (True, False)
    assert (shared.lease_firm(1_999), shared.lease_firm(2_000)) == (True, False)
    assert shared.trouble == ""


def test_a_late_answer_neither_shortens_a_lease_nor_serves_another_epoch() -> None:
    shared = line()
    shared.registered(7)
    shared.lease_granted(7, 2_000, firm=True)
    shared.lease_granted(7, 1_500, firm=True)
    assert shared.lease_valid(1_999)
    shared.registration_lost(7)
    shared.lease_granted(7, 9_000, firm=True)
    assert not shared.lease_valid(1)


def test_a_lost_registration_is_noticed_once_and_the_next_one_is_of_another_incarnation() -> None:
    shared = line()
    shared.registered(7)
    before = shared.incarnation_id
    assert shared.registration_lost(7)
    assert not shared.registration_lost(7)
    assert shared.incarnation_id != before
    # It knows its own earlier epoch, so it need not wait for itself to be fenced.
    assert (shared.broker_epoch, shared.previous_broker_epoch) == (-1, 7)


def test_an_answer_of_a_lower_controller_epoch_does_not_count() -> None:
    shared = line()
    assert [shared.accept_epoch(epoch) for epoch in (3, 2, 3, 4, 3)] == [True, False, True, True, False]


def test_controllers_are_tried_in_turn_and_a_failure_of_an_earlier_one_moves_nobody() -> None:
    shared = line(None, "a:1", "b:2", "[::1]:3")
    assert shared.address() == ("a", 1)
    shared.try_next(("a", 1))
    shared.try_next(("a", 1))
    assert shared.address() == ("b", 2)
    shared.try_next(("b", 2))
    assert shared.address() == ("::1", 3)
    shared.try_next(("::1", 3))
    assert shared.address() == ("a", 1)


def test_the_wait_between_tries_grows_up_to_a_bound() -> None:
    shared = line()
    waits = [shared.backoff_ms(failures) for failures in range(40)]
    assert waits[0] <= 50
    assert RECONNECT_BACKOFF_MAX_MS // 2 <= waits[39] <= RECONNECT_BACKOFF_MAX_MS


def test_not_controller_is_found_at_the_top_and_in_rows() -> None:
    refused = CreatableTopicResult(name="a", error_code=ErrorCode.NOT_CONTROLLER)
    assert says_not_controller(BrokerLeaseResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert says_not_controller(CreateTopicsResponse(topics=[refused]))
    assert not says_not_controller(CreateTopicsResponse(topics=[CreatableTopicResult(name="a")]))
    assert not says_not_controller(ControllerStatusResponse(topics=3))


def test_topics_that_differ_between_two_images_are_named() -> None:
    a, b, c = incarnation(1), incarnation(2), incarnation(3)
    old = after(cluster(1), TopicCreated("a", a), TopicCreated("b", b), TopicCreated("c", c))
    new = after(old, TopicConfigSet(a, "retention.ms", "1"), TopicDeleted(b), TopicCreated("b", incarnation(4)))
    assert changed_topics(old, new) == {a, b, incarnation(4)}
    assert changed_topics(new, new) == frozenset()
