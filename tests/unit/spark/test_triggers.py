"""A batch begins when enough is there or when the time is over, as with Spark's Kafka source."""

from __future__ import annotations

from spark.triggers import TriggerDelay

MINUTE_MS = 60_000


def test_the_first_batch_begins_whatever_there_is() -> None:
    assert not TriggerDelay(1_000, MINUTE_MS).holds_back(0, now_ms=5)


def test_a_batch_waits_until_enough_is_there() -> None:
    delay = TriggerDelay(100, MINUTE_MS)
    delay.holds_back(1, now_ms=0)
    assert delay.holds_back(99, now_ms=10)
    assert not delay.holds_back(100, now_ms=20)
    assert delay.holds_back(99, now_ms=30), "the next one waits again"


def test_a_batch_waits_no_longer_than_the_limit() -> None:
    delay = TriggerDelay(100, MINUTE_MS)
    delay.holds_back(1, now_ms=0)
    assert not delay.holds_back(100, now_ms=50_000)
    assert delay.holds_back(1, now_ms=50_000 + MINUTE_MS - 1), "counted from the last batch"
    assert not delay.holds_back(1, now_ms=50_000 + MINUTE_MS)
    assert delay.holds_back(1, now_ms=50_000 + MINUTE_MS + 1)


def test_without_a_minimum_nothing_waits() -> None:
    delay = TriggerDelay(0, MINUTE_MS)
    assert not any(delay.holds_back(0, now_ms) for now_ms in range(3))
