"""The lake's protocol through bad days: each record in exactly one file that counts, whatever happens when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance.base.errors import InvariantBroken
from appliance.tiering.lake import policy
from appliance.tiering.lake.ledger import Ledger
from tests.support.lake_world import Lakes
from tests.support.seeds import seeds

EVENTS = 900
BROKEN_SEEDS = 60


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.tiering.lake.ledger.FILES_MAX", 8)
    monkeypatch.setattr("appliance.tiering.lake.ledger.PAGE_FILES", 4)


@pytest.mark.parametrize("seed", seeds(30))
def test_each_record_is_in_exactly_one_lake_file(seed: int) -> None:
    Lakes(seed).run(EVENTS)


def test_bad_days_are_bad() -> None:
    """What the seeds above go through, so that they cannot pass for want of trouble."""
    worlds = [Lakes(seed) for seed in range(5)]
    for world in worlds:
        world.run(EVENTS)
    assert any(world.ledger.skipped for world in worlds)
    assert any(world.ledger.pages for world in worlds)
    assert any(world.ledger.plan_no > len({file.plan for file in world.listed(world.ledger)}) for world in worlds)
    assert sum(world.changes for world in worlds) > 250


def caught(broken: str) -> bool:
    """Whether one of the seeds finds out."""
    for seed in range(BROKEN_SEEDS):
        try:
            Lakes(seed, broken).run(EVENTS)
        except (AssertionError, InvariantBroken):
            return True
    return False


@pytest.mark.parametrize(
    "broken",
    [
        "no plan",
        "blind swap",
        "one number",
        "undecided is written",
        "open plan is dead",
        "higher numbers are dead",
    ],
)
def test_a_broken_protocol_is_caught(broken: str) -> None:
    assert caught(broken)


def test_giving_a_number_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next plan after one that was given up takes its number again, and finds its files."""

    def reusing(ledger: Ledger, tier: policy.Tier) -> Ledger:
        newer = genuine(ledger, tier)
        return replace(newer, plan_no=newer.plan_no - 1) if ledger.plan is not None else newer

    genuine = policy.skipped
    monkeypatch.setattr(policy, "skipped", reusing)
    assert caught("adopt")
