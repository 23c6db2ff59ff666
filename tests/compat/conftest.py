"""One appliance for all unmodified clients: use topics and groups of your own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.compat import AGAINST_KAFKA, Server, running_server


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three brokers; or Apache Kafka, where COMPAT_SERVER=kafka asks whether our expectations are Kafka's."""
    if AGAINST_KAFKA:
        peer = request.getfixturevalue("kafka_peer")
        yield Server(peer.bootstrap_servers, peer.folder / "data", brokers=1)
        return
    with running_server(tmp_path_factory.mktemp("compat")) as running:
        yield running


@pytest.fixture
def group_id() -> str:
    """Of a group that no other test has."""
    return f"group-{uuid.uuid4().hex[:12]}"
