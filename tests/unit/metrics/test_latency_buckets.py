from __future__ import annotations

import itertools
import random

from appliance.metrics.latency_buckets import (
    BUCKETS,
    UPPER_US,
    LatencyBuckets,
    cumulative_seconds,
    quantile_us,
)


def test_bounds_rise_by_a_quarter_at_most() -> None:
    assert list(UPPER_US) == sorted(set(UPPER_US))
    assert all(after <= before * 1.25 + 1 for before, after in itertools.pairwise(UPPER_US))


def test_every_duration_falls_below_the_upper_bound_of_its_bucket_and_not_below_that_before() -> None:
    for duration_us in [*range(10_000), 2**20 - 1, 2**20, 2**20 + 1, 2**29, 2**30 - 1]:
        buckets = LatencyBuckets()
        buckets.record(duration_us)
        (bucket,) = [number for number, count in enumerate(buckets.counts) if count]
        assert duration_us < UPPER_US[bucket]
        assert bucket == 0 or duration_us >= UPPER_US[bucket - 1]


def test_what_is_too_long_or_went_backwards_is_counted_too() -> None:
    buckets = LatencyBuckets()
    for duration_us in (2**30, 2**50, -5):
        buckets.record(duration_us)
    assert (buckets.counts[-1], buckets.counts[0]) == (2, 1)
    assert len(buckets.counts) == BUCKETS


def test_quantiles_are_right_within_a_quarter() -> None:
    random_numbers = random.Random(7)
    durations = sorted(int(random_numbers.lognormvariate(6, 2)) for _ in range(10_000))
    buckets = LatencyBuckets()
    for duration_us in durations:
        buckets.record(duration_us)
    for share in (0.5, 0.99, 0.999):
        exact = durations[int(share * len(durations)) - 1]
        assert exact <= quantile_us(buckets.counts, share) <= 1.25 * exact + 2
    assert quantile_us([0] * BUCKETS, 0.99) == 0


def test_a_histogram_counts_up_to_all() -> None:
    buckets = LatencyBuckets()
    for duration_us in (1, 3, 5, 100, 2**40):
        buckets.record(duration_us)
    told = dict(cumulative_seconds(buckets.counts))
    assert (told["8e-06"], told["0.000128"], told["+Inf"]) == (3, 4, 5)
