"""Stock clients with acks=all write while brokers and controllers are killed and paused and links are cut, by a seed.

Nothing acknowledged is lost, nothing is doubled with idempotence, and the order of each partition is kept. The history
is printed on failure; CHAOS_SEED=<seed> runs one again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.support.chaos import ChaosCluster, suffer

FAULTS = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with ChaosCluster(tmp_path_factory.mktemp("chaos")) as running:
        yield running


def _seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("run", range(3))
def test_three_brokers_lose_nothing_whatever_happens_to_one_of_them(cluster: ChaosCluster, run: int) -> None:
    suffer(cluster, _seed() + run, FAULTS)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("brokers", [3, 5])
def test_twenty_bad_days(tmp_path_factory: pytest.TempPathFactory, brokers: int) -> None:
    first = _seed()
    with ChaosCluster(tmp_path_factory.mktemp("chaos"), brokers) as cluster:
        for run in range(20):
            suffer(cluster, first + run, faults=8)
