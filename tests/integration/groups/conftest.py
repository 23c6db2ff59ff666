from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import RunningCluster, running_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One controller and two brokers for all tests of groups: use topics and groups of your own."""
    folder: Path = tmp_path_factory.mktemp("groups")
    properties = {"group.initial.rebalance.delay.ms": "200", "group.min.session.timeout.ms": "1000"}
    with running_cluster(folder, brokers=2, properties=properties) as running:
        yield running
