"""One partition, three replicas, one bad day for each seed (`make sim SEEDS=…` for more)."""

from __future__ import annotations

import pytest

from tests.support.replication_world import Broken, ForgetsProposals, OnlyCommittedIsr, Violated, World
from tests.support.seeds import seeds

CAUGHT_WITHIN = 200
"""Seeds in which a broken rule has to show."""
WORST_DAYS = (2, 35, 71, 86)
"""Seeds that have shown one; tried first."""


@pytest.mark.parametrize("seed", seeds(30))
def test_what_is_committed_stays(seed: int) -> None:
    world = World(seed)
    world.run()
    assert len(world.acknowledged) > 20


def test_the_days_are_bad_enough() -> None:
    counts: dict[str, int] = {}
    for seed in range(10):
        world = World(seed)
        world.run()
        for what, count in world.counts.items():
            counts[what] = counts.get(what, 0) + count
    assert counts["elections"] > 8 and counts["truncations"] > 5 and counts["torn"] > 2


@pytest.mark.parametrize(
    "broken",
    [
        Broken(leader=OnlyCommittedIsr),
        Broken(leader=ForgetsProposals),
        Broken(truncates_to_high_watermark=True),
        Broken(checks_partition_epoch=False),
    ],
    ids=["HW over the committed ISR only", "maxISR dropped at a refusal", "truncation to the HW", "no epoch check"],
)
def test_a_broken_rule_is_noticed(broken: Broken) -> None:
    for seed in (*WORST_DAYS, *range(CAUGHT_WITHIN)):
        try:
            World(seed, broken).run()
        except Violated as found:
            assert "at the end" not in str(found), found
            return
    pytest.fail(f"nothing noticed in {CAUGHT_WITHIN} seeds")


def test_the_same_seed_is_the_same_day() -> None:
    days = []
    for _ in range(2):
        world = World(7)
        world.run()
        days.append((world.events, world.counts, world.acknowledged, world.committed))
    assert days[0] == days[1]
