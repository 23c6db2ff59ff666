"""The check of what became of numbered records notices what it is there for."""

from __future__ import annotations

import pytest

from tests.support.loads import PADDING, Confluent, Load, check


def load_of(acknowledged: dict[int, int], sent: int, *, exactly_once: bool = True) -> Load:
    load = Confluent("127.0.0.1:1", "topic", {"enable.idempotence": exactly_once}, partitions=2)
    load.sent = sent
    for number, offset in acknowledged.items():
        load.took(number, offset)
    return load


def log_of(*numbers: int) -> list[bytes]:
    return [b"%d" % number + PADDING for number in numbers]


def test_all_records_where_they_were_said_to_be_pass() -> None:
    check(load_of({0: 0, 1: 0, 2: 1, 3: 1}, 5), [log_of(0, 2, 4), log_of(1, 3)])


def test_a_doubled_record_passes_where_nobody_promised_otherwise() -> None:
    check(load_of({0: 0, 2: 2}, 3, exactly_once=False), [log_of(0, 0, 2), []])


@pytest.mark.parametrize(
    ("even", "complaint"),
    [
        ((0, 2), "is lost"),
        ((0, 4, 2), "where 2 was acknowledged"),
        ((0, 2, 4, 8, 6), "out of order"),
        ((0, 2, 4, 4), "records twice"),
        ((0, 2, 4, 5), "nobody sent"),
    ],
)
def test_what_is_wrong_is_named(even: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(load_of({0: 0, 2: 1, 4: 2}, 10), [log_of(*even), []])


def test_a_record_that_is_sent_after_an_acknowledgement_has_to_lie_behind() -> None:
    load = Confluent("127.0.0.1:1", "topic", {"acks": "all"}, ordered=False)
    load.sent = 1
    load.took(1, 1)
    load.sent = 3
    load.took(2, 0)
    with pytest.raises(AssertionError, match="sent after"):
        check(load, [log_of(2, 1)])


def test_records_under_way_together_may_change_places_where_the_client_promises_no_order() -> None:
    load = Confluent("127.0.0.1:1", "topic", {"acks": "all"}, ordered=False)
    load.sent = 2
    load.took(1, 0)
    load.took(0, 1)
    check(load, [log_of(1, 0)])


def test_a_record_that_idempotence_gave_up_is_a_failure() -> None:
    load = load_of({}, 0)
    load.errors.append("7: timed out")
    with pytest.raises(AssertionError, match="timed out"):
        check(load, [[], []])
