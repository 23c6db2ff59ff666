from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.client.connection import Connection
from tests.support.broker import RunningCluster, running_cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One controller and one broker for the tests of a module: use topics of your own."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, properties={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="test", timeout_ms=10_000) as connection:
        yield connection
