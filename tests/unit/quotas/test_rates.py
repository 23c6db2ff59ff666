"""How a rate is measured, and how long its user waits."""

from __future__ import annotations

import random

import pytest

from appliance.quotas.rates import Rate, TokenBucket


def rate_of(limit: float) -> Rate:
    return Rate(limit, windows=11, window_ms=1_000)


def test_nobody_waits_below_the_limit() -> None:
    rate = rate_of(100)
    for second in range(60):
        rate.record(90, second * 1_000)
        assert rate.wait_ms(second * 1_000) == 0


def test_a_burst_after_silence_counts_as_spread_over_all_windows_but_one() -> None:
    rate = rate_of(100)
    rate.record(1_000, 0)
    assert rate.wait_ms(0) == 0
    rate.record(500, 0)
    assert rate.per_second(0) == 150
    assert rate.wait_ms(0) == 5_000


def test_after_its_wait_the_average_is_at_the_limit() -> None:
    rate = rate_of(1_000)
    rate.record(25_000, 0)
    wait_ms = rate.wait_ms(0)
    assert wait_ms == 15_000
    assert rate.wait_ms(wait_ms) == 0


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    rate = rate_of(1)
    rate.record(1_000_000, 0)
    assert not rate.is_idle(10_999)
    assert rate.is_idle(11_000)
    assert rate.wait_ms(11_000) == 0


@pytest.mark.parametrize("seed", range(5))
def test_whoever_waits_as_told_stays_at_the_limit_over_a_long_time(seed: int) -> None:
    source = random.Random(seed)
    limit = source.choice([10.0, 1_000.0, 1e6])
    rate = rate_of(limit)
    now_ms, used = 0, 0.0
    while now_ms < 600_000:
        units = limit * source.uniform(0.1, 3)
        rate.record(units, now_ms)
        used += units
        now_ms += rate.wait_ms(now_ms) + source.randint(0, 50)
    assert 0.85 * limit < used * 1_000 / now_ms < 1.15 * limit


def test_a_limit_of_nothing_lets_nothing_through_for_all_windows() -> None:
    rate = rate_of(0)
    rate.record(1, 0)
    assert rate.wait_ms(0) == 11_000


def test_a_bucket_lets_a_burst_through_and_then_what_flows_in() -> None:
    bucket = TokenBucket(rate=2, windows=11, window_ms=1_000, now_ms=0)
    bucket.take(22, 0)
    assert bucket.wait_ms(0) == 0
    bucket.take(10, 0)
    assert bucket.wait_ms(0) == 5_000
    assert bucket.wait_ms(4_999) > 0
    assert bucket.wait_ms(5_000) == 0


def test_a_bucket_holds_no_more_than_a_burst() -> None:
    bucket = TokenBucket(rate=1, windows=11, window_ms=1_000, now_ms=0)
    bucket.take(12, 1_000_000)
    assert bucket.wait_ms(1_000_000) == 1_000
