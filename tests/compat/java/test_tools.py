"""The command-line tools that Apache Kafka 4.3 comes with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.compat import AGAINST_KAFKA, KEYS, Sample, Server, produce, read_topic
from tests.support.java_tools import tool

pytestmark = pytest.mark.java

# fmt: off
SERVED = {
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup",
    "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups", "ListGroups", "ApiVersions", "CreateTopics",
    "DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "DescribeConfigs", "AlterConfigs",
    "DescribeLogDirs", "CreatePartitions", "DeleteGroups", "IncrementalAlterConfigs", "OffsetDelete",
    "DescribeCluster", "DescribeProducers", "DescribeTopicPartitions", "AddPartitionsToTxn", "AddOffsetsToTxn",
    "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit", "DescribeTransactions", "ListTransactions", "ElectLeaders",
    "AlterPartitionReassignments", "ListPartitionReassignments", "UnregisterBroker", "DescribeClientQuotas",
    "AlterClientQuotas", "DescribeQuorum", "UpdateFeatures", "ListConfigResources", "SaslHandshake", "SaslAuthenticate",
    "DescribeUserScramCredentials", "AlterUserScramCredentials", "DescribeAcls", "CreateAcls", "DeleteAcls",
    "ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "StreamsGroupHeartbeat", "StreamsGroupDescribe",
    "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets", "InitializeShareGroupState", "ReadShareGroupState",
    "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary", "AlterReplicaLogDirs",
    "GetTelemetrySubscriptions", "PushTelemetry",
}
# fmt: on
WITH_A_PLUGIN_IN_KAFKA = {"GetTelemetrySubscriptions", "PushTelemetry"}
"""Apache Kafka names these only where something is configured that takes clients' metrics."""


def rows(text: str) -> list[list[str]]:
    """The words of each line that is not empty."""
    return [line.split() for line in text.splitlines() if line.strip()]


def test_kafka_topics_makes_shows_changes_and_deletes(server: Server, group_id: str) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    name = f"java-{group_id}"
    new = ("--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=60000")
    assert f"Created topic {name}." in tool("TopicCommand", *at, "--create", "--topic", name, *new)
    assert [name] in rows(tool("TopicCommand", *at, "--list"))
    described = tool("TopicCommand", *at, "--describe", "--topic", name)
    head, *partitions = described.strip().splitlines()
    assert re.search(r"TopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: .*retention.ms=60000", head)
    assert len(partitions) == 3
    for number, line in enumerate(partitions):
        assert re.search(rf"Partition: {number}\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", line), line
    tool("TopicCommand", *at, "--delete", "--topic", name)
    assert name not in server.admin.list_topics(timeout=10).topics


def test_lines_go_through_the_console_tools_in_a_group(server: Server, group_id: str) -> None:
    partitions = 7
    topic, other = server.new_topic(partitions), server.new_topic(partitions)
    at = ("--bootstrap-server", server.bootstrap_servers)
    keys = [key.decode() for key in KEYS if key.isalnum() and key.isascii()]
    parse = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"{key}:{number}\n" for number, key in enumerate(keys))
    tool("ConsoleProducer", *at, "--topic", topic, *parse, "--compression-codec", "lz4", stdin=lines)

    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    limits = ("--from-beginning", "--max-messages", str(len(keys)), "--timeout-ms", "20000")
    read = tool("consumer.ConsoleConsumer", *at, "--topic", topic, "--group", group_id, *shown, *limits)
    assert sorted(read.splitlines()) == sorted(lines.splitlines())

    # The Java producer chooses partitions as librdkafka does when it is asked to.
    produce(server, other, [Sample(key.encode(), b"", [], 0) for key in keys], None, partitioner="murmur2_random")
    placed = [
        {each.key(): each.partition() for each in read_topic(server, name, partitions)} for name in (topic, other)
    ]
    assert placed[0] == placed[1]

    described = rows(tool("consumer.group.ConsumerGroupCommand", *at, "--describe", "--group", group_id))
    lag = [row[3:6] for row in described if row[:2] == [group_id, topic]]
    ends = [list(placed[0].values()).count(number) for number in range(partitions)]
    assert sorted(lag) == sorted([str(end), str(end), "0"] for end in ends)
    assert [group_id] in rows(tool("consumer.group.ConsumerGroupCommand", *at, "--list"))


def test_the_perf_tools_move_what_they_are_told_to(server: Server) -> None:
    topic = server.new_topic(3)
    at = ("--bootstrap-server", server.bootstrap_servers)
    load = ("--num-records", "50000", "--record-size", "200", "--throughput", "-1")
    options = ("--command-property", "acks=all", "compression.type=zstd", "linger.ms=5", "batch.size=65536")
    sent = tool("ProducerPerformance", "--topic", topic, *at, *load, *options)
    assert sent.splitlines()[-1].startswith("50000 records sent")
    offsets = tool("GetOffsetShell", *at, "--topic", topic).split()
    counts = {int(line.split(":")[1]): int(line.split(":")[2]) for line in offsets}
    assert sorted(counts) == [0, 1, 2]
    assert sum(counts.values()) == 50_000
    read = tool("ConsumerPerformance", *at, "--topic", topic, "--num-records", "50000", "--timeout", "20000")
    head, numbers = (line.split(", ") for line in read.splitlines())
    assert dict(zip(head, numbers, strict=True))["data.consumed.in.nMsg"] == "50000"


def test_records_are_deleted_and_offsets_told_by_name_and_time(server: Server, tmp_path: Path) -> None:
    topic = server.new_topic(retention_ms="-1")
    times = [1_600_000_000_000 + each for each in (0, 1, 2, 3, 9, 5)]
    produce(server, topic, [Sample(None, b"x", [], each) for each in times])
    at = ("--bootstrap-server", server.bootstrap_servers)
    until = tmp_path / "until.json"
    until.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}))
    assert "low_watermark: 2" in tool("DeleteRecordsCommand", *at, "--offset-json-file", str(until))
    for time, offset in [("earliest", 2), ("max-timestamp", 4), ("1600000000003", 3)]:
        told = tool("GetOffsetShell", *at, "--topic", topic, "--time", time)
        assert told.split() == [f"{topic}:0:{offset}"]


def test_configs_are_described_and_altered(server: Server) -> None:
    topic = server.new_topic(retention_ms="60000")
    at = ("--bootstrap-server", server.bootstrap_servers, "--entity-type", "topics", "--entity-name", topic)
    change = ("--add-config", "segment.ms=70000,cleanup.policy=[delete]", "--delete-config", "retention.ms")
    assert f"Completed updating config for topic {topic}." in tool("kafka.admin.ConfigCommand", *at, "--alter", *change)
    told = tool("kafka.admin.ConfigCommand", *at, "--describe", "--all")
    configs = {row[0]: row[2] for row in rows(told)[1:]}
    assert configs["segment.ms=70000"].startswith("synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=70000")
    assert configs["max.message.bytes=1048588"] == "synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}"
    assert {"cleanup.policy=delete", "retention.ms=604800000"} <= configs.keys()
    assert len(configs) > 25


def test_every_broker_tells_what_it_serves(server: Server) -> None:
    told = tool("BrokerApiVersionsCommand", "--bootstrap-server", server.bootstrap_servers)
    assert len(re.findall(r"^\S+:\d+ \(id: \d+", told, re.MULTILINE)) == server.brokers
    usable = re.findall(r"^\t(\w+)\(\d+\): .* \[usable: \d+\]", told, re.MULTILINE)
    of_each = {name for name in usable if usable.count(name) == server.brokers}
    if AGAINST_KAFKA:
        assert of_each >= SERVED - WITH_A_PLUGIN_IN_KAFKA
    else:
        assert of_each == set(usable) == SERVED, "docs/compatibility.md lists what is served"


def test_log_folders_are_described(server: Server) -> None:
    topic = server.new_topic()
    produce(server, topic, [b"x" * 1_000])
    at = ("--bootstrap-server", server.bootstrap_servers)
    told = tool("LogDirsCommand", *at, "--describe", "--topic-list", topic)
    (folders,) = (json.loads(line) for line in told.splitlines() if line.startswith("{"))
    found = [part for broker in folders["brokers"] for folder in broker["logDirs"] for part in folder["partitions"]]
    size = sum(file.stat().st_size for file in server.partition_folder(topic).glob("*.log"))
    assert [(part["partition"], part["size"], part["offsetLag"]) for part in found] == [(f"{topic}-0", size, 0)]


def test_kafka_delete_records_moves_the_beginning(server: Server, tmp_path: Path) -> None:
    topic = server.new_topic(2)
    for partition in range(2):
        produce(server, topic, [b"%d" % number for number in range(10)], partition=partition)
    offsets = tmp_path / "offsets.json"
    wanted = [{"topic": topic, "partition": 0, "offset": 4}, {"topic": topic, "partition": 1, "offset": -1}]
    offsets.write_text(json.dumps({"version": 1, "partitions": wanted}))
    at = ("--bootstrap-server", server.bootstrap_servers)
    told = tool("DeleteRecordsCommand", *at, "--offset-json-file", str(offsets))
    assert f"partition: {topic}-0\tlow_watermark: 4" in told and f"partition: {topic}-1\tlow_watermark: 10" in told
    starts = rows(tool("GetOffsetShell", *at, "--topic", topic, "--time", "earliest").replace(":", " "))
    assert sorted(starts) == [[topic, "0", "4"], [topic, "1", "10"]]
    left = read_topic(server, topic, 2, auto_offset_reset="earliest")
    assert [message.value() for message in left] == [b"%d" % number for number in range(4, 10)]
    wanted[0]["offset"] = 11
    offsets.write_text(json.dumps({"version": 1, "partitions": wanted[:1]}))
    told = tool("DeleteRecordsCommand", *at, "--offset-json-file", str(offsets))
    assert "OffsetOutOfRange" in told
