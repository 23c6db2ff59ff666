"""More of Apache Kafka's command-line tools: elections, latency, metrics of clients, groups and their offsets."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.compat import Sample, Server, commit_offsets, produce
from tests.support.java_tools import tool

pytestmark = [pytest.mark.java, pytest.mark.compat]

TIME = 1_700_000_000_000
GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.fixture
def at(server: Server) -> tuple[str, str]:
    return ("--bootstrap-server", server.bootstrap_servers)


def rows_of(topic: str, text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if topic in line.split()]


def test_kafka_leader_election_finds_the_preferred_leader_elected(server: Server, at: tuple[str, str]) -> None:
    topic = server.new_topic(2)
    election = ("--election-type", "preferred")
    one = tool("LeaderElectionCommand", *at, *election, "--topic", topic, "--partition", "1")
    assert f"Valid replica already elected for partitions {topic}-1" in one
    every = tool("LeaderElectionCommand", *at, *election, "--all-topic-partitions", code=0)
    assert f"{topic}-0" in every or "Valid replica" in every or every.strip() == ""
    failed = tool("LeaderElectionCommand", *at, *election, "--topic", "no-such-topic", "--partition", "0", code=1)
    assert "UnknownTopicOrPartition" in failed


def test_the_latency_tool_measures_each_record(server: Server, at: tuple[str, str]) -> None:
    topic = server.new_topic()
    load = ("--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "100")
    told = tool("EndToEndLatency", *at, *load)
    assert re.search(r"Avg latency: [\d.]+ ms", told)
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", told)


def test_the_perf_tools_print_their_metrics(server: Server, at: tuple[str, str]) -> None:
    topic = server.new_topic(3)
    load = ("--num-records", "5000", "--record-size", "100", "--throughput", "5000")
    transactional = ("--transactional-id", topic, "--transaction-duration-ms", "100")
    sent = tool("ProducerPerformance", "--topic", topic, *at, *load, "--print-metrics", *transactional)
    assert "5000 records sent" in sent
    assert re.search(r"producer-metrics:record-send-total:.* : \d{4}", sent)
    read = ("--num-records", "5000", "--timeout", "20000", "--print-metrics")
    told = tool("ConsumerPerformance", *at, "--topic", topic, *read)
    head, numbers = (line.split(", ") for line in told.splitlines()[:2])
    assert int(dict(zip(head, numbers, strict=True))["data.consumed.in.nMsg"]) >= 5_000
    assert "consumer-fetch-manager-metrics:records-consumed-total" in told


def test_offsets_are_told_for_chosen_partitions(server: Server, at: tuple[str, str]) -> None:
    topic = server.new_topic(4)
    for partition in range(4):
        produce(server, topic, [b"x"] * (partition + 1), partition)
    chosen = tool("GetOffsetShell", *at, "--topic-partitions", f"{topic}:1-3")
    assert chosen.split() == [f"{topic}:1:2", f"{topic}:2:3"]
    own = tool("GetOffsetShell", *at, "--topic", topic, "--partitions", "0,3", "--exclude-internal-topics")
    assert own.split() == [f"{topic}:0:1", f"{topic}:3:4"]
    local = tool("GetOffsetShell", *at, "--topic", topic, "--partitions", "0", "--time", "earliest-local")
    assert local.split() == [f"{topic}:0:0"]


def test_the_cluster_and_its_features_are_told(server: Server, at: tuple[str, str]) -> None:
    assert re.search(r"Cluster ID: \S+", tool("ClusterTool", "cluster-id", *at))
    endpoints = tool("ClusterTool", "list-endpoints", *at)
    for address in server.bootstrap_servers.split(","):
        assert address.rpartition(":")[2] in endpoints
    features = tool("FeatureCommand", *at, "describe")
    assert re.search(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2", features)
    refused = tool("FeatureCommand", *at, "upgrade", "--feature", "transaction.version=99", code=1)
    assert "transaction.version" in refused
    replication = tool("MetadataQuorumCommand", *at, "describe", "--replication")
    assert re.search(r"^\d+\s.*Leader", replication, re.MULTILINE)


def test_kafka_client_metrics_keeps_subscriptions(server: Server, at: tuple[str, str], group_id: str) -> None:
    metrics = ("--metrics", "org.apache.kafka.producer.", "--interval", "10000", "--match", "client_id=mine")
    tool("ClientMetricsCommand", *at, "--alter", "--name", group_id, *metrics)
    assert group_id in tool("ClientMetricsCommand", *at, "--list").split()
    told = tool("ClientMetricsCommand", *at, "--describe", "--name", group_id)
    assert "interval.ms=10000" in told and "metrics=org.apache.kafka.producer." in told and "client_id=mine" in told
    tool("ClientMetricsCommand", *at, "--delete", "--name", group_id)
    assert group_id not in tool("ClientMetricsCommand", *at, "--list").split()


@pytest.fixture
def group(server: Server, group_id: str) -> Callable[..., str]:
    """A topic of ten records, of which the group has read five."""

    def make() -> str:
        topic = server.new_topic(retention_ms="-1")
        produce(server, topic, [Sample(None, b"x", [], TIME + 1_000 * number) for number in range(10)])
        commit_offsets(server, group_id, topic, {0: 5})
        return topic

    return make


def test_a_groups_offsets_are_reset_exported_and_deleted(
    server: Server, at: tuple[str, str], group_id: str, group: Callable[..., str], tmp_path: Path
) -> None:
    topic = group()

    def reset(*how: str) -> str:
        (row,) = rows_of(topic, tool(GROUPS, *at, "--group", group_id, "--reset-offsets", *how))
        return row[3]

    here = ("--topic", topic, "--execute")
    assert reset(*here, "--shift-by", "-2") == "3"
    assert reset("--topic", topic, "--dry-run", "--to-latest") == "10"
    assert reset(*here, "--to-datetime", "2023-11-14T22:13:24.000Z") == "4"
    exported = tool(GROUPS, *at, "--group", group_id, "--reset-offsets", "--all-topics", "--to-current", "--export")
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(line for line in exported.splitlines() if topic in line) + "\n")
    assert plan.read_text().replace('"', "").strip() == f"{topic},0,4"
    assert reset(*here, "--to-earliest") == "0"
    assert reset("--from-file", str(plan), "--execute") == "4"
    (described,) = rows_of(topic, tool(GROUPS, *at, "--describe", "--group", group_id))
    assert described[1:6] == [topic, "0", "4", "10", "6"] or described[1:7] == [topic, "0", "4", "10", "6", "-"]
    assert "Empty" in tool(GROUPS, *at, "--describe", "--group", group_id, "--state")
    deleted = tool(GROUPS, *at, "--delete-offsets", "--group", group_id, "--topic", topic)
    assert "Successful" in deleted
    commit_offsets(server, group_id, topic, {0: 1})
    assert group_id in tool("GroupsCommand", *at, "--list")
    assert "successful" in tool(GROUPS, *at, "--delete", "--group", group_id)
    assert group_id not in tool("GroupsCommand", *at, "--list")


def test_a_streams_application_is_reset(
    server: Server, at: tuple[str, str], group_id: str, group: Callable[..., str]
) -> None:
    topic = group()
    own = f"{group_id}-counts-changelog"
    tool("TopicCommand", *at, "--create", "--topic", own, "--partitions", "1", "--replication-factor", "1")
    told = tool("StreamsResetter", *at, "--application-id", group_id, "--input-topics", topic, "--force")
    assert f"Topic: {topic} Partition: 0 Offset: 0" in told
    assert own not in tool("TopicCommand", *at, "--list").split()
    (described,) = rows_of(topic, tool(GROUPS, *at, "--describe", "--group", group_id))
    assert described[3] == "0"
