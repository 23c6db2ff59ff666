"""While a leader asks about a transaction, its own marker voids the answer, and that of the one before does not."""

from __future__ import annotations

import pytest

from appliance.server.handlers.transaction_calls import Guards

PLACE = ("t", 0)
PRODUCER, EPOCH = 7, 5


@pytest.mark.parametrize(
    ("epoch", "transaction_version", "is_valid"),
    [
        (EPOCH, 0, False),
        (EPOCH + 1, 0, False),
        (EPOCH + 1, 2, False),
        # Its end gave the producer the epoch in which it asks now (KIP-890).
        (EPOCH, 2, True),
        (EPOCH - 1, 2, True),
        (EPOCH - 1, 0, True),
    ],
)
def test_only_an_end_of_the_transaction_that_is_asked_about_voids_the_answer(
    epoch: int, transaction_version: int, is_valid: bool
) -> None:
    guards = Guards()
    guard = guards.watch(*PLACE, PRODUCER, EPOCH)
    guards.marker_comes(*PLACE, PRODUCER, epoch, transaction_version)
    assert guards.end(*PLACE, PRODUCER, guard) is is_valid


def test_a_marker_of_another_producer_or_place_means_nothing() -> None:
    guards = Guards()
    guard = guards.watch(*PLACE, PRODUCER, EPOCH)
    guards.marker_comes("t", 1, PRODUCER, EPOCH + 1, 0)
    guards.marker_comes(*PLACE, PRODUCER + 1, EPOCH + 1, 0)
    assert guards.end(*PLACE, PRODUCER, guard)


def test_a_marker_that_comes_later_means_nothing() -> None:
    guards = Guards()
    first, second = (guards.watch(*PLACE, PRODUCER, EPOCH) for _ in range(2))
    assert guards.end(*PLACE, PRODUCER, first)
    guards.marker_comes(*PLACE, PRODUCER, EPOCH + 1, 2)
    assert first.is_valid and not guards.end(*PLACE, PRODUCER, second)
