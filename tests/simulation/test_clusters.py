"""Whole clusters on bad days, one for each seed (`make sim SEEDS=…` for more): nothing that was promised is lost.

The real controllers, brokers, partitions and logs of metadata, over a played network, store, disk and clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import cluster_variants as variants
from tests.support.cluster_variants import Patch
from tests.support.cluster_world import Violated, World
from tests.support.repo import REPO
from tests.support.seeds import seeds

DAYS = 50
ENOUGH = (
    "crashes",
    "host crashes",
    "torn",
    "lost disks",
    "controller crashes",
    "pauses",
    "stalls",
    "cuts",
    "store away",
    "clock jumps",
    "orderly ends",
    "preferred elections",
    "reassignments",
    "elections",
    "from the ELR",
    "unclean elections",
    "topics deleted",
    "reads",
    "acknowledged",
)
"""Of each of these something has to happen in fifty days."""


@pytest.fixture(scope="module")
def lived() -> Iterator[Counter[str]]:
    """What has happened on the days of this run."""
    yield Counter()


@pytest.mark.parametrize("seed", seeds(DAYS))
def test_nothing_promised_is_lost(seed: int, lived: Counter[str]) -> None:
    world = World(seed)
    world.run()
    lived.update(world.counts)
    lived["days"] += 1


def test_the_days_are_bad_enough(lived: Counter[str]) -> None:
    if lived["days"] < DAYS:
        pytest.skip("judged over the days of a whole run")
    assert not [what for what in ENOUGH if not lived[what]]


def test_the_same_seed_is_the_same_day_under_any_hash_seed() -> None:
    code = "from tests.support.cluster_world import World; world = World(3); world.run(); print(world.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=REPO,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "77")
    }
    assert len(digests) == 1 and digests.pop().strip()


VARIANT_DAYS = 40
"""Days in which a broken rule has to show."""


@pytest.mark.parametrize(
    "variant",
    [
        variants.high_watermark_over_the_committed_isr,
        variants.commits_overwritten,
    ],
    ids=lambda variant: variant.__name__,
)
def test_a_broken_rule_is_noticed(variant: object, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule: Patch = variant  # type: ignore[assignment]
    break_rule(monkeypatch.setattr)  # type: ignore[call-arg, arg-type]
    with pytest.raises(Violated, match="seed"):
        for seed in range(VARIANT_DAYS):
            World(seed).run()
