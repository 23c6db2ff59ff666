"""Replicas and leaders that move on a whole cluster, by Apache Kafka's tools and by our own command."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from appliance.base.ids import TopicPartition
from appliance.cli.main import app
from appliance.client.client import Client
from appliance.client.cluster import PartitionMetadata
from appliance.client.results import NewTopic
from tests.support.broker import RunningCluster, running_cluster
from tests.support.java_tools import TOOLS, tool
from tests.support.requests import batch_of

BROKERS = 4
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("moves"), BROKERS) as running:
        yield running


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap_servers) as made:
        yield made


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """Two partitions on brokers 1 and 2, with records in them."""
    name = re.sub(r"\W", "-", request.node.name)[:60]
    create(client, name, [1, 2], [2, 1])
    return name


def create(client: Client, name: str, *replicas: list[int], **configs: str) -> None:
    topic = NewTopic(name, assignments=replicas, configs=configs)
    client.create_topics([topic])


def partitions(client: Client, topic: str) -> dict[int, PartitionMetadata]:
    return client.metadata([topic]).topics[topic].partitions


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def command(cluster: RunningCluster, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments, "--bootstrap-server", cluster.bootstrap_servers])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.java
def test_our_description_of_a_topic_is_that_of_apache_kafkas_tool(
    cluster: RunningCluster, client: Client, topic: str
) -> None:
    told = tool("TopicCommand", "--bootstrap-server", cluster.bootstrap_servers, "--describe", "--topic", topic)
    rows = re.findall(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)\s+Elr: (\S*)", told)
    theirs = {int(number): (int(leader), replicas, isr) for number, leader, replicas, isr, _ in rows}
    (document,) = json.loads(command(cluster, "topics", "describe", topic, "--format", "json"))
    ours = {
        p["partition"]: (p["leader"], ",".join(map(str, p["replicas"])), ",".join(map(str, p["isr"])))
        for p in document["partitions"]
    }
    assert theirs == ours == {0: (1, "1,2", "1,2"), 1: (2, "2,1", "2,1")}


@pytest.mark.java
def test_apache_kafkas_tool_moves_replicas_and_finds_them_moved(
    cluster: RunningCluster, client: Client, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    moves = [
        {"topic": topic, "partition": 0, "replicas": [3, 4]},
        {"topic": topic, "partition": 1, "replicas": [2, 3]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    common = ("--bootstrap-server", cluster.bootstrap_servers, "--reassignment-json-file", str(plan))
    begun = tool(REASSIGN, *common, "--execute", "--throttle", "100000000")
    assert "Successfully started partition reassignments" in begun
    wait_for(lambda: partitions(client, topic)[0].replicas == (3, 4), "the partition has moved")
    wait_for(lambda: partitions(client, topic)[1].replicas == (2, 3), "the other one, too")
    told = tool(REASSIGN, *common, "--verify")
    assert told.count("is completed") == 2
    first = partitions(client, topic)[0]
    assert (first.leader, sorted(first.isr)) == (3, [3, 4])
    assert partitions(client, topic)[1].leader == 2


@pytest.mark.java
def test_apache_kafkas_tool_elects_preferred_leaders(cluster: RunningCluster, client: Client, topic: str) -> None:
    # The order of replicas decides who is preferred; who leads stays until somebody asks.
    move(cluster, topic, 0, [2, 1])
    assert partitions(client, topic)[0].leader == 1
    told = tool(
        "LeaderElectionCommand",
        *("--bootstrap-server", cluster.bootstrap_servers, "--election-type", "preferred"),
        *("--topic", topic, "--partition", "0"),
    )
    assert "Successfully completed leader election (PREFERRED)" in told
    wait_for(lambda: partitions(client, topic)[0].leader == 2, "the preferred one leads")
    again = command(cluster, "cluster", "elect-leaders", topic)
    assert again.count("ELECTION_NOT_NEEDED") == 2


def move(cluster: RunningCluster, topic: str, partition: int, replicas: list[int] | None) -> None:
    from appliance.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    row = ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])])
    with Client(cluster.bootstrap_servers) as client:
        assert client.call(request).responses[0].partitions[0].error_code == 0


def test_records_are_there_after_their_partition_has_moved(cluster: RunningCluster, client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    for number in range(20):
        client.produce(partition, batch_of(b"before-%d" % number))
    move(cluster, topic, 0, [4, 3])
    wait_for(lambda: partitions(client, topic)[0].replicas == (4, 3), "the partition has moved")
    assert client.produce(partition, batch_of(b"after")).base_offset == 20
    batches = client.fetch(partition, 0).records
    assert b"before-0" in batches
    assert b"before-19" in batches


def test_our_command_empties_a_broker(cluster: RunningCluster, client: Client) -> None:
    for number in range(3):
        create(client, f"drained-{number}", [4, 1], [2, 4], [3, 4])
    dry = json.loads(command(cluster, "cluster", "rebalance", "--drain", "4", "--format", "json"))
    assert not dry["applied"]
    assert partitions(client, "drained-0")[0].replicas == (4, 1)
    command(cluster, "cluster", "rebalance", "--drain", "4", "--apply", "--throttle", "50000000")
    topics = client.metadata().topics.values()
    held = [p for t in topics for p in t.partitions.values()]
    assert all(4 not in p.replicas for p in held)
    leads = [sum(p.leader == b for p in held) for b in (1, 2, 3)]
    assert max(leads) - min(leads) <= 1
    assert command(cluster, "cluster", "reassignments") == ""
    refused = CliRunner().invoke(app, ["cluster", "unregister", "4", "-b", cluster.bootstrap_servers])
    assert "stop it first" in str(refused.exception)
