from __future__ import annotations

from appliance.broker_actors.restarts import RestartPolicy


def test_what_keeps_ending_is_started_at_once_and_then_waits_ever_longer_up_to_the_limit() -> None:
    policy = RestartPolicy(backoff_ms=500, backoff_max_ms=3_000)
    assert [policy.ended("broker-1", now_ms=0) for _ in range(6)] == [0, 500, 1_000, 2_000, 3_000, 3_000]


def test_each_process_waits_for_itself() -> None:
    policy = RestartPolicy(backoff_ms=500, backoff_max_ms=3_000)
    policy.ended("broker-1", now_ms=0)
    assert policy.ended("broker-2", now_ms=10) == 10
    assert policy.ended("broker-2", now_ms=10) == 510


def test_what_served_for_long_is_forgiven_and_what_served_briefly_is_not() -> None:
    policy = RestartPolicy(backoff_ms=500, backoff_max_ms=3_000, forgive_after_ms=60_000)
    policy.ended("broker-1", now_ms=0)
    policy.ready("broker-1", now_ms=1_000)
    assert policy.ended("broker-1", now_ms=60_999) == 61_499
    policy.ready("broker-1", now_ms=62_000)
    assert policy.ended("broker-1", now_ms=122_000) == 122_000


def test_endless_failure_costs_no_endless_number() -> None:
    policy = RestartPolicy(backoff_ms=1, backoff_max_ms=10)
    for _ in range(10_000):
        assert policy.ended("broker-1", now_ms=0) <= 10
