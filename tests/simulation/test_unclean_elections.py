"""Whole clusters in which a leader dies alone in the ISR: of those that live, the one with the longest log leads."""

from __future__ import annotations

import pytest

from tests.support import cluster_scenarios as scenarios
from tests.support import cluster_variants as variants
from tests.support.cluster_clients import LOSSY
from tests.support.cluster_world import Violated
from tests.support.seeds import seeds

DAYS = 8


@pytest.mark.parametrize("seed", seeds(DAYS))
def test_the_longest_log_leads_after_an_unclean_election(seed: int) -> None:
    world, longest = scenarios.followers_left_behind(seed)
    assert world.checks.image.topics[LOSSY].partitions[0].leader == longest
    assert world.counts["unclean elections"] == 1
    assert world.counts["logs compared"] == 2


def test_an_election_of_the_first_instead_of_the_longest_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    variants.first_that_lives_instead_of_the_longest(monkeypatch.setattr)
    with pytest.raises(Violated, match="11: "):
        scenarios.followers_left_behind(0)
