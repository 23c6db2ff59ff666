from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.randomness import SeededRandomness
from appliance.client.cluster import parse_bootstrap_servers
from appliance.client.connection import ConnectionLost
from appliance.client.retries import Retry, RetryPolicy


class ManualClock:
    """Stands still until somebody sleeps."""

    def __init__(self) -> None:
        self.ms = 1_000
        self.waits: list[float] = []

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds * 1000)
        self.ms += round(seconds * 1000)


def retry_of(clock: ManualClock, policy: RetryPolicy, timeout_ms: int = 60_000) -> Retry:
    return Retry(policy, 30_000, timeout_ms, clock, SeededRandomness(1), clock.sleep)


def test_waits_double_up_to_their_limit_with_jitter() -> None:
    clock = ManualClock()
    retry = retry_of(clock, RetryPolicy(retry_limit=8, backoff_ms=100, backoff_max_ms=1_000))
    for _ in range(8):
        retry.pause(ConnectionLost("x"))
    for wait, expected in zip(clock.waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert 0.79 * expected <= wait <= 1.21 * expected
    assert len(set(clock.waits[4:])) > 1, "clients that failed together must not come back together"


def test_after_the_last_attempt_the_failure_is_raised_and_says_how_often_it_was_tried() -> None:
    clock = ManualClock()
    retry = retry_of(clock, RetryPolicy(retry_limit=2, backoff_ms=1))
    retry.pause(ConnectionLost("x"))
    retry.pause(ConnectionLost("x"))
    with pytest.raises(ConnectionLost) as caught:
        retry.pause(ConnectionLost("last"))
    assert caught.value.__notes__ == ["tried 3 times"]


def test_there_is_no_wait_that_would_outlast_the_operation() -> None:
    clock = ManualClock()
    retry = retry_of(clock, RetryPolicy(retry_limit=100, backoff_ms=400, backoff_max_ms=400), timeout_ms=1_000)
    with pytest.raises(ConnectionLost):
        for _ in range(10):
            retry.pause(ConnectionLost("x"))
    assert clock.ms - 1_000 < 1_000


def test_an_attempt_has_its_own_limit_within_the_operations() -> None:
    clock = ManualClock()
    retry = retry_of(clock, RetryPolicy(), timeout_ms=40_000)
    assert retry.attempt_ms() == 30_000
    clock.ms += 35_000
    assert retry.attempt_ms() == 5_000
    clock.ms += 35_000
    assert retry.attempt_ms() == 1


def test_an_error_that_kafka_does_not_call_retriable_is_raised_at_once() -> None:
    clock = ManualClock()
    retry = retry_of(clock, RetryPolicy())
    with pytest.raises(KafkaError):
        retry.pause(KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
    assert clock.waits == []


def test_bootstrap_servers_may_be_ipv6_addresses() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:9092,") == [("a", 1), ("::1", 9092)]
