"""kafka-reassign-partitions under a throttle: execute, list, verify and cancel, as against Apache Kafka itself."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.benchmarks.three_nodes import KafkaNodes
from tests.support.broker import running_cluster
from tests.support.compat import AGAINST_KAFKA
from tests.support.java_tools import TOOLS, tool

pytestmark = pytest.mark.java

REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
SLOW, FAST = "1000", "100000000"
RECORD_BYTES, RECORDS = 100_000, 60
"""More than one fetch brings, which Apache Kafka does not split for a throttle."""
SIDES = ("leader", "follower")


@contextmanager
def _three_brokers(folder: Path) -> Iterator[str]:
    if AGAINST_KAFKA:
        with KafkaNodes(folder) as nodes:
            yield nodes.bootstrap_servers
    else:
        with running_cluster(folder, 3) as running:
            yield running.bootstrap_servers


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with _three_brokers(tmp_path_factory.mktemp("reassignments")) as bootstrap_servers:
        yield bootstrap_servers


class Moves:
    """A topic with one partition on broker 1, and the tool that moves it to broker 2 or 3."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self.topic = f"moved-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": address})
        self.admin.create_topics([NewTopic(self.topic, 1, replica_assignment=[[1]])])[self.topic].result(30)
        self._plan = folder / "plan.json"
        self.to([2])
        producer = Producer({"bootstrap.servers": address, "batch.size": 200_000})
        for _ in range(RECORDS):
            producer.produce(self.topic, bytes(RECORD_BYTES), partition=0)
        assert producer.flush(60) == 0

    def to(self, replicas: Sequence[int]) -> None:
        move = {"topic": self.topic, "partition": 0, "replicas": list(replicas)}
        self._plan.write_text(json.dumps({"version": 1, "partitions": [move]}))

    def tool(self, *arguments: str, code: int = 0) -> str:
        plan = ("--reassignment-json-file", str(self._plan)) if "--list" not in arguments else ()
        return tool(REASSIGN, "--bootstrap-server", self.address, *plan, *arguments, code=code)

    @property
    def replicas(self) -> list[int]:
        return self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions[0].replicas

    def own_configs(self, kind: ResourceType, name: str) -> dict[str, str]:
        """What was set for a throttle."""
        resource = ConfigResource(kind, name)
        entries = self.admin.describe_configs([resource])[resource].result(30)
        return {key: entry.value for key, entry in entries.items() if ".throttled." in key and not entry.is_default}

    def throttles(self) -> dict[int, dict[str, str]]:
        return {broker_id: self.own_configs(ResourceType.BROKER, str(broker_id)) for broker_id in (1, 2, 3)}


@pytest.fixture
def moves(address: str, tmp_path: Path) -> Moves:
    return Moves(address, tmp_path)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def test_a_throttled_move_is_listed_made_faster_verified_and_leaves_no_throttle(moves: Moves) -> None:
    begun = moves.tool("--execute", "--throttle", SLOW)
    assert f"The inter-broker throttle limit was set to {SLOW} B/s" in begun
    assert f"Successfully started partition reassignment for {moves.topic}-0" in begun
    rates = {f"{side}.replication.throttled.rate": SLOW for side in SIDES}
    assert {broker_id: told for broker_id, told in moves.throttles().items() if told} == {1: rates, 2: rates}
    assert moves.own_configs(ResourceType.TOPIC, moves.topic) == {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    listed = moves.tool("--list")
    assert re.search(rf"{moves.topic}-0: replicas: 2,1\. adding: 2\. removing: 1\.", listed), listed
    told = moves.tool("--verify")
    assert f"Reassignment of partition {moves.topic}-0 is still in progress." in told
    assert moves.throttles()[1] == rates, "a throttle stays until all is moved"

    moves.tool("--execute", "--additional", "--throttle", FAST)
    wait_for(lambda: moves.replicas == [2], "the partition has moved")
    told = moves.tool("--verify")
    assert f"Reassignment of partition {moves.topic}-0 is completed." in told
    assert "Clearing broker-level throttles on brokers 1,2,3" in told
    assert f"Clearing topic-level throttles on topic {moves.topic}" in told
    assert not any(moves.throttles().values())
    assert moves.own_configs(ResourceType.TOPIC, moves.topic) == {}
    assert "No partition reassignments found." in moves.tool("--list")


def test_a_throttled_move_is_cancelled_with_its_throttle(moves: Moves) -> None:
    moves.to([3])
    moves.tool("--execute", "--throttle", SLOW)
    assert sorted(moves.replicas) == [1, 3]
    told = moves.tool("--cancel")
    assert f"Successfully cancelled partition reassignment for: {moves.topic}-0" in told
    wait_for(lambda: moves.replicas == [1], "the partition is where it was")
    assert not any(moves.throttles().values())
    assert moves.own_configs(ResourceType.TOPIC, moves.topic) == {}
    assert "None of the specified partition reassignments are active." in moves.tool("--cancel")
