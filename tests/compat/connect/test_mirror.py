"""MirrorMaker 2 between Apache Kafka and ours, both ways: records, topics' configs and groups' offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.support.compat import AGAINST_KAFKA, Sample, Server, commit_offsets, produce, read_topic, sample_of
from tests.support.kafka_peer import KafkaPeer
from tests.support.programs import RunningProgram, java_program, needs_a_build

pytestmark = [pytest.mark.java, pytest.mark.compat, needs_a_build]

TIME = 1_700_000_000_000
COUNT = 200
"""Records of a partition. The groups have read them all: MirrorMaker translates only the newest offsets exactly."""
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def other(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Apache Kafka beside the server; a second one where that is Apache Kafka, too."""
    if AGAINST_KAFKA:
        with KafkaPeer() as peer:
            yield Server(peer.bootstrap_servers, peer.folder / "data", brokers=1)
    else:
        peer = request.getfixturevalue("kafka_peer")
        yield Server(peer.bootstrap_servers, peer.folder / "data", brokers=1)


def filled(server: Server, group_id: str) -> str:
    """A topic with records, and a group that has read them."""
    topic = server.new_topic(2, retention_ms="-1", max_message_bytes="1234567")
    for partition in range(2):
        records = [Sample(b"k%d" % number, b"v%d" % number, [("h", b"1")], TIME + number) for number in range(COUNT)]
        produce(server, topic, records, partition, compression_type="lz4")
    commit_offsets(server, group_id, topic, dict.fromkeys(range(2), COUNT))
    return topic


def rows(server: Server, topic: str) -> list[tuple[int, int, Sample]]:
    messages = read_topic(server, topic, 2)
    return sorted((message.partition() or 0, message.offset() or 0, sample_of(message)) for message in messages)


def committed(server: Server, group_id: str, topic: str) -> list[int]:
    asked = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, number) for number in range(2)])
    told = server.admin.list_consumer_group_offsets([asked])[group_id].result(PATIENCE_S)
    return [partition.offset for partition in told.topic_partitions or []]


def config_of(server: Server, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return str(server.admin.describe_configs([resource])[resource].result(PATIENCE_S)[name].value)


def properties(server: Server, other: Server, group_id: str, theirs: str, ours: str) -> str:
    things = ("topics", "groups")
    seconds = [f"refresh.{each}" for each in things] + ["emit.checkpoints", "sync.group.offsets", "sync.topic.configs"]
    internal = ("checkpoints", "heartbeats", "offset-syncs")
    storage = ("offset", "status", "config")
    content = {
        "clusters": "kafka, ours",
        "kafka.bootstrap.servers": other.bootstrap_servers,
        "ours.bootstrap.servers": server.bootstrap_servers,
        "kafka->ours.enabled": "true",
        "ours->kafka.enabled": "true",
        "kafka->ours.topics": theirs,
        "ours->kafka.topics": ours,
        "kafka->ours.groups": f"{group_id}-theirs",
        "ours->kafka.groups": f"{group_id}-ours",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",
        "replication.factor": "1",
        **{f"{name}.interval.seconds": "1" for name in seconds},
        **{f"{name}.topic.replication.factor": "1" for name in internal},
        **{f"{name}.storage.replication.factor": "1" for name in storage},
    }
    return "".join(f"{name} = {value}\n" for name, value in content.items())


def is_mirrored(mirror: RunningProgram, source: Server, topic: str, group_id: str, target: Server, copy: str) -> None:
    mirror.until(lambda: copy in target.admin.list_topics(timeout=30).topics)
    mirror.until(lambda: len(read_topic(target, copy, 2)) >= 2 * COUNT)
    assert rows(target, copy) == rows(source, topic)
    mirror.until(lambda: committed(target, group_id, copy) == [COUNT] * 2)
    assert config_of(target, copy, "max.message.bytes") == "1234567"


@pytest.mark.timeout(900)
def test_topics_and_offsets_are_mirrored_both_ways(
    server: Server, other: Server, tmp_path: Path, group_id: str
) -> None:
    theirs, ours = filled(other, f"{group_id}-theirs"), filled(server, f"{group_id}-ours")
    config = tmp_path / "mirror.properties"
    config.write_text(properties(server, other, group_id, theirs, ours))
    command = java_program(Path(__file__).parent, "org.apache.kafka.connect.mirror.MirrorMaker")
    mirror = RunningProgram([*command, str(config)])
    try:
        is_mirrored(mirror, other, theirs, f"{group_id}-theirs", server, f"kafka.{theirs}")
        is_mirrored(mirror, server, ours, f"{group_id}-ours", other, f"ours.{ours}")
        produce(other, theirs, [b"later"])
        mirror.until(lambda: len(read_topic(server, f"kafka.{theirs}", 2)) == 2 * COUNT + 1)
    finally:
        mirror.kill()
