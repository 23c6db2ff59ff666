"""How long things take, counted in fixed buckets: one addition for each, nothing is allocated.

Bounds are log-linear as in an HDR histogram: four to each power of two of microseconds, so that a quantile is right
within a quarter of its value.
"""

from __future__ import annotations

from collections.abc import Sequence

_STEPS = 4
"""Buckets to each power of two."""
_TABLE_US = 4_096
"""Below this a table says which bucket it is."""
_POWERS = 30
"""The last bucket holds all above 2^30 µs, eighteen minutes."""


def _bucket_of(duration_us: int) -> int:
    if duration_us < _STEPS:
        return max(0, duration_us)
    power = duration_us.bit_length() - 1
    if power >= _POWERS:
        return BUCKETS - 1
    return _STEPS * (power - 1) + ((duration_us >> (power - 2)) & (_STEPS - 1))


def _upper_us(bucket: int) -> int:
    """The first duration that is above a bucket."""
    if bucket < _STEPS:
        return bucket + 1
    power, step = bucket // _STEPS + 1, bucket % _STEPS
    return (_STEPS + step + 1) << (power - 2)


BUCKETS = _STEPS * (_POWERS - 1) + 1
UPPER_US: Sequence[int] = [_upper_us(bucket) for bucket in range(BUCKETS)]
"""Durations in a bucket are below this; the last bucket has no such limit."""
_BUCKET_OF_SHORT = bytes(_bucket_of(duration_us) for duration_us in range(_TABLE_US))


class LatencyBuckets:
    """Counts since the start. Written by one thread, read by any."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total_us = 0

    def record(self, duration_us: int) -> None:
        self.counts[_BUCKET_OF_SHORT[duration_us] if 0 <= duration_us < _TABLE_US else _bucket_of(duration_us)] += 1
        self.total_us += duration_us


def quantile_us(counts: Sequence[int], share: float) -> int:
    """An upper bound of the duration that this share of all does not exceed; 0 without any."""
    wanted = share * sum(counts)
    if not wanted:
        return 0
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return UPPER_US[bucket]
    return UPPER_US[-1]


def cumulative_seconds(counts: Sequence[int]) -> list[tuple[str, float]]:
    """As Prometheus wants a histogram: the counts up to each power of two of microseconds, and all."""
    buckets: list[tuple[str, float]] = []
    seen = 0
    for bucket, count in enumerate(counts[:-1]):
        seen += count
        upper_us = UPPER_US[bucket]
        if bucket >= _STEPS and upper_us & (upper_us - 1) == 0:
            buckets.append((f"{upper_us / 1e6:g}", float(seen)))
    return [*buckets, ("+Inf", float(seen + counts[-1]))]
