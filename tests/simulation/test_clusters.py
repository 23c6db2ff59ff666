"""Whole clusters on bad days, one for each seed (`make sim SEEDS=…` for more): nothing that was promised is lost.

The real controllers, brokers, partitions and logs of metadata, over a played network, store, disk and clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.support import cluster_scenarios as scenarios
from tests.support import cluster_variants as variants
from tests.support.cluster_variants import Patch
from tests.support.cluster_world import Violated, World
from tests.support.repo import REPO
from tests.support.seeds import seeds

Break = Callable[[Patch], None]

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

FOUND = {
    310: "a registration that the store kept waiting is of an earlier life",
    504: "a topic is made anew while its predecessor's log is being opened",
    537: "a disk is lost, and the other replica died before it had begun its log",
    751: "a log is refused while what it waits for is decided",
    821: "the leader changes between staging and writing",
    1014: "a process ends before it has told that its host went down",
}
"""Days on which something was found: what caused each has a test of its own, too."""


@pytest.fixture(scope="module")
def lived() -> Iterator[Counter[str]]:
    """What has happened on the days of this run."""
    yield Counter()


@pytest.mark.parametrize("seed", seeds(DAYS))
def test_nothing_promised_is_lost(seed: int, lived: Counter[str]) -> None:
    world = World(seed)
    try:
        world.run()
    finally:
        lived.update(world.counts)
        lived["days"] += 1


@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: f"{seed}: {FOUND[seed]}")
def test_days_on_which_something_was_found_end_well(seed: int) -> None:
    World(seed).run()


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


VARIANT_DAYS = 25
"""Days in which a broken rule has to show."""


@pytest.mark.parametrize(
    "break_rule",
    [
        variants.high_watermark_over_the_committed_isr,
        variants.high_watermark_moves_below_min_isr,
        variants.partition_epoch_not_checked,
        variants.truncation_to_the_high_watermark,
    ],
    ids=lambda variant: variant.__name__,
)
def test_a_broken_rule_is_noticed(break_rule: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(monkeypatch.setattr)
    with pytest.raises(Violated, match="seed") as found:
        for seed in range(VARIANT_DAYS):
            World(seed).run()
    assert "at the end" not in str(found.value)


def _move(seed: int) -> World:
    return scenarios.leader_moved_while_cut_off(seed, next_dies=False)


def _move_to_one_that_dies(seed: int) -> World:
    return scenarios.leader_moved_while_cut_off(seed, next_dies=True)


DIRECTED = {
    "a leader cut off": scenarios.leader_cut_off,
    "leader and controller cut off together": scenarios.leader_and_controller_cut_off_together,
    "a move that the leader does not hear of": _move,
    "and the next one dies": _move_to_one_that_dies,
}
DIRECTED_DAYS = 6
"""Seeds of a directed day in which a broken rule has to show."""


@pytest.mark.parametrize("day", DIRECTED)
def test_one_leader_at_a_time_answers(day: str) -> None:
    assert DIRECTED[day](0).counts["elections"]


@pytest.mark.parametrize(
    ("day", "break_rule"),
    [
        ("a leader cut off", variants.answers_past_the_lease),
        ("a leader cut off", variants.failover_before_the_lease_ends),
        ("leader and controller cut off together", variants.soft_lease_without_healthy_isr),
        ("a move that the leader does not hear of", variants.no_hand_over_from_a_live_leader),
        ("and the next one dies", variants.one_earlier_leader_instead_of_the_list),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_lease_or_hand_over_is_noticed(day: str, break_rule: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_rule(monkeypatch.setattr)
    with pytest.raises(Violated, match="8: "):
        for seed in range(DIRECTED_DAYS):
            DIRECTED[day](seed)
