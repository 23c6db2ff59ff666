"""Apache Kafka's own consumer and tools on our groups, and on the records that we keep of them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.support.broker import RunningCluster
from tests.support.group_clients import new_topic
from tests.support.kafka_jars import java_command

pytestmark = pytest.mark.java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def tool(main_class: str, *arguments: str) -> str:
    """Run a tool; what it said."""
    done = subprocess.run(java_command(main_class, *arguments), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def consume(cluster: RunningCluster, topic: str, group_id: str, count: int) -> list[str]:
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", group_id]
    limits = ["--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"]
    return tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, *limits).split()


def groups(cluster: RunningCluster, *arguments: str) -> list[list[str]]:
    """Rows of the table that kafka-consumer-groups prints."""
    said = tool(GROUPS, "--bootstrap-server", cluster.bootstrap_servers, *arguments)
    return [line.split() for line in said.splitlines() if line.strip()]


def test_a_groups_whole_life(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=2, records=10)
    assert sorted(consume(cluster, topic, "java-life", 10)) == [str(number) for number in range(10)]
    rows = groups(cluster, "--describe", "--group", "java-life")
    assert sorted(row[1:6] for row in rows if row[0] == "java-life") == [
        [topic, "0", "5", "5", "0"],
        [topic, "1", "5", "5", "0"],
    ]
    reset = groups(
        cluster, "--group", "java-life", "--reset-offsets", "--to-offset", "3", "--topic", topic, "--execute"
    )
    assert sorted(row for row in reset if row[0] == "java-life") == [
        ["java-life", topic, "0", "3"],
        ["java-life", topic, "1", "3"],
    ]
    assert ["java-life", "Empty"] in groups(cluster, "--list", "--state")
    assert "successful" in " ".join(groups(cluster, "--delete", "--group", "java-life")[0])


def test_kafkas_tool_reads_our_records(cluster: RunningCluster) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=1, records=3)
    consume(cluster, topic, "java-records", 3)
    # One copy of each partition: the longest, for followers may be a moment behind.
    copies = sorted(cluster.folder.glob("broker-*/__consumer_offsets-*/*.log"), key=lambda log: log.stat().st_size)
    logs = {log.parent.name: str(log) for log in copies if log.stat().st_size}
    said = tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs.values()), "--offsets-decoder")
    records = [line for line in said.splitlines() if '"group":"java-records"' in line]
    values = [json.loads(line.partition(" payload: ")[2]) for line in records]
    generations = [value["data"] for value in values if "generation" in value["data"]]
    offsets = [value["data"] for value in values if "offset" in value["data"]]
    assert [(each["generation"], each["protocolType"], len(each["members"])) for each in generations] == [
        (1, "consumer", 1),
        (2, "consumer", 0),
    ]
    assert generations[0]["members"][0]["assignment"]["assignedPartitions"] == [{"topic": topic, "partitions": [0]}]
    assert offsets[-1]["offset"] == 3
    assert "isvalid: false" not in said


def test_kafkas_tool_reads_our_records_of_consumer_groups(cluster: RunningCluster) -> None:
    """Of a group of the new protocol: its epoch, member, target, and what the member had, and their ends."""
    topic = new_topic(cluster.bootstrap_servers, partitions=2, records=4)
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group", "java-new"]
    limits = ["--from-beginning", "--max-messages", "4", "--timeout-ms", "30000"]
    new = ["--command-property", "group.protocol=consumer"]
    assert len(tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, *limits, *new).split()) == 4
    copies = sorted(cluster.folder.glob("broker-*/__consumer_offsets-*/*.log"), key=lambda log: log.stat().st_size)
    logs = {log.parent.name: str(log) for log in copies if log.stat().st_size}
    said = tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs.values()), "--offsets-decoder")
    found: dict[str, list[Any]] = {}
    for line in said.splitlines():
        if '"groupId":"java-new"' in line:
            key, _, value = line.partition(" key: ")[2].partition(" payload: ")
            content = json.loads(value)["data"] if value.startswith("{") else None
            found.setdefault(str(json.loads(key)["type"]), []).append(content)
    assert sorted(found) == ["3", "5", "6", "7", "8"], said
    assert found["5"][0]["subscribedTopicNames"] == [topic]
    assert [sorted(each["partitions"]) for each in found["7"][0]["topicPartitions"]] == [[0, 1]]
    assert [sorted(each["partitions"]) for each in found["8"][0]["assignedPartitions"]] == [[0, 1]]
    assert [found[kind][-1] for kind in ("5", "7", "8")] == [None, None, None]
    assert found["3"][-1]["epoch"] > found["6"][-1]["assignmentEpoch"]
    assert "isvalid: false" not in said
