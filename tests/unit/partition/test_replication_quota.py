"""Throttled replicas are copied no faster than the rate (KIP-73)."""

from __future__ import annotations

import random

import pytest

from appliance.partition.replication_quota import (
    LOOK_AGAIN_MS,
    SHORTEST_WAIT_MS,
    UNLIMITED,
    ReplicationQuota,
    is_listed,
)
from tests.support.seeds import seeds


def test_what_has_moved_is_waited_for() -> None:
    quota = ReplicationQuota()
    assert quota.wait_ms(1_000, now_ms=0) == 0
    quota.moved(250, 1_000, now_ms=0)
    assert quota.wait_ms(1_000, now_ms=0) == 250
    assert quota.wait_ms(1_000, now_ms=249) == SHORTEST_WAIT_MS
    assert quota.wait_ms(1_000, now_ms=250) == 0


def test_idle_time_is_not_saved_up() -> None:
    quota = ReplicationQuota()
    quota.moved(100, 1_000, now_ms=0)
    quota.moved(100, 1_000, now_ms=1_000_000)
    assert quota.wait_ms(1_000, now_ms=1_000_000) == 100


def test_another_rate_holds_at_once() -> None:
    quota = ReplicationQuota()
    quota.moved(1_000_000, 10, now_ms=0)
    assert quota.wait_ms(10, now_ms=0) == LOOK_AGAIN_MS, "the rate is looked at again and again"
    assert quota.wait_ms(10_000_000, now_ms=0) == 100
    assert quota.wait_ms(UNLIMITED, now_ms=1) == 0
    assert quota.wait_ms(10, now_ms=1) == 0, "nothing is owed from the time before"


def test_at_a_rate_of_zero_nothing_moves() -> None:
    assert ReplicationQuota().wait_ms(0, now_ms=5) == LOOK_AGAIN_MS


@pytest.mark.parametrize("seed", seeds(20))
def test_over_any_time_no_more_moves_than_the_rate_and_one_answer(seed: int) -> None:
    chance = random.Random(seed)
    rate, quota = chance.randrange(1, 5_000), ReplicationQuota()
    now_ms, moved = 0, [(0, 0)]
    for _ in range(300):
        now_ms += chance.choice((1, 7, 400, quota.wait_ms(rate, now_ms)))
        if not quota.wait_ms(rate, now_ms):
            size = chance.randrange(1, 3_000)
            quota.moved(size, rate, now_ms)
            moved.append((now_ms, size))
    for first in range(0, len(moved), 7):
        begin_ms, total = moved[first][0], 0
        for at_ms, size in moved[first:]:
            assert total <= rate * (at_ms - begin_ms) / 1_000 + 3_000, f"seed {seed}"
            total += size


def test_replicas_are_listed_one_by_one_or_all() -> None:
    assert is_listed(("*",), 3, 9)
    assert is_listed(("0:1", "3:9"), 3, 9)
    assert not is_listed(("0:1", "3:8"), 3, 9)
    assert not is_listed((), 3, 9)
