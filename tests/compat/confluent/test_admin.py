"""Administration with librdkafka's AdminClient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.compat import AGAINST_KAFKA, PATIENCE_S, Sample, Server, produce, read_topic, wait_until

pytestmark = pytest.mark.xdist_group("compat")

START = 1_600_000_000_000


def refused(code: str, future: Any) -> str:
    """The message beside the error code with which this must end."""
    with pytest.raises(KafkaException) as raised:
        future.result(PATIENCE_S)
    error = raised.value.args[0]
    assert error.name() == code
    return str(error.str())


def configs(server: Server, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    (future,) = server.admin.describe_configs([ConfigResource(kind, name)]).values()
    entries: dict[str, ConfigEntry] = future.result(PATIENCE_S)
    return entries


def set_configs(server: Server, topic: str, changes: Iterable[tuple[str, str | None, AlterConfigOpType]]) -> Any:
    """One IncrementalAlterConfigs request."""
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value, operation in changes]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (future,) = server.admin.incremental_alter_configs([resource]).values()
    return future


def seen(server: Server, topic: str) -> bool:
    """Whether every broker that may be asked knows it: metadata reaches them one by one."""
    return topic in server.admin.list_topics(timeout=PATIENCE_S).topics


def test_a_topic_lives_from_create_to_delete(server: Server, group_id: str) -> None:
    name = f"life-{group_id}"
    new = NewTopic(name, 4, 1, config={"retention.ms": "1234567", "cleanup.policy": "delete"})
    assert server.admin.create_topics([new])[name].result(PATIENCE_S) is None
    wait_until(lambda: seen(server, name))
    described = server.admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S)
    assert (described.name, described.is_internal, len(described.partitions)) == (name, False, 4)
    assert all(len(part.replicas) == len(part.isr) == 1 for part in described.partitions)
    assert all(part.leader.id == part.replicas[0].id for part in described.partitions)
    assert server.admin.delete_topics([name])[name].result(PATIENCE_S) is None
    wait_until(lambda: not seen(server, name))
    refused("UNKNOWN_TOPIC_OR_PART", server.admin.delete_topics([name])[name])


@pytest.mark.skipif(AGAINST_KAFKA, reason="in Kafka leaders and other brokers may hear of a topic later than its maker")
def test_a_topic_that_was_made_is_led_and_known_everywhere_at_once(server: Server, group_id: str) -> None:
    """A client that hears of a topic too late remembers for half a minute that there is none."""
    for number in range(20):
        name = f"at-once-{number}-{group_id}"
        server.admin.create_topics([NewTopic(name, 3, 1)])[name].result(PATIENCE_S)
        asked = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(3)}
        assert [future.result(PATIENCE_S).offset for future in server.admin.list_offsets(asked).values()] == [0, 0, 0]


def test_a_topic_that_is_made_anew_is_another_one(server: Server, group_id: str) -> None:
    name = f"anew-{group_id}"
    ids = set()
    for value in (b"old", b"new"):
        server.admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
        wait_until(lambda: seen(server, name))
        produce(server, name, [value])
        assert [message.value() for message in read_topic(server, name)] == [value]
        ids.add(str(server.admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_S).topic_id))
        server.admin.delete_topics([name])[name].result(PATIENCE_S)
        wait_until(lambda: not seen(server, name))
    assert len(ids) == 2


def test_the_brokers_defaults_are_taken(server: Server, group_id: str) -> None:
    name = f"defaults-{group_id}"
    server.admin.create_topics([NewTopic(name)])[name].result(PATIENCE_S)
    wait_until(lambda: seen(server, name))
    (part,) = server.admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions.values()
    assert len(part.replicas) == 1


def test_replicas_stand_where_they_are_told_to(server: Server, group_id: str) -> None:
    name = f"told-{group_id}"
    brokers = sorted(server.admin.list_topics(timeout=PATIENCE_S).brokers)
    chosen = [brokers[-1], brokers[0], brokers[-1]]
    new = NewTopic(name, 3, replica_assignment=[[broker] for broker in chosen])
    server.admin.create_topics([new])[name].result(PATIENCE_S)
    wait_until(lambda: seen(server, name))
    partitions = server.admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions
    assert [partitions[number].leader for number in range(3)] == chosen


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (lambda name: NewTopic("bad name!", 1, 1), "TOPIC_EXCEPTION"),
        (lambda name: NewTopic("x" * 250, 1, 1), "TOPIC_EXCEPTION"),
        (lambda name: NewTopic(name, 1, 99), "INVALID_REPLICATION_FACTOR"),
        (lambda name: NewTopic(name, 1, 1, config={"retention.m": "1"}), "INVALID_CONFIG"),
        (lambda name: NewTopic(name, 1, 1, config={"retention.ms": "soon"}), "INVALID_CONFIG"),
        (lambda name: NewTopic(name, 1, 1, config={"cleanup.policy": "burn"}), "INVALID_CONFIG"),
        (lambda name: NewTopic(name, 1, replica_assignment=[[4711]]), "INVALID_REPLICA_ASSIGNMENT"),
    ],
    ids=["name", "length", "replication", "unknown config", "config value", "policy", "unknown broker"],
)
def test_what_cannot_be_made_is_refused(
    server: Server, group_id: str, new: Callable[[str], NewTopic], code: str
) -> None:
    asked = new(f"refused-{group_id}")
    assert refused(code, server.admin.create_topics([asked])[asked.topic]), "a message says what is wrong"


def test_a_topic_that_is_there_is_not_made_again(server: Server) -> None:
    name = server.new_topic()
    refused("TOPIC_ALREADY_EXISTS", server.admin.create_topics([NewTopic(name, 1, 1)])[name])


def test_asking_only_whether_a_topic_could_be_made_makes_none(server: Server, group_id: str) -> None:
    name = f"asked-{group_id}"
    server.admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(PATIENCE_S)
    refused("INVALID_REPLICATION_FACTOR", server.admin.create_topics([NewTopic(name, 1, 99)], validate_only=True)[name])
    assert not seen(server, name)


def test_neighbours_of_a_refused_topic_are_made(server: Server, group_id: str) -> None:
    good, bad = f"good-{group_id}", f"bad-{group_id}"
    futures = server.admin.create_topics([NewTopic(good, 1, 1), NewTopic(bad, 1, 99)])
    assert futures[good].result(PATIENCE_S) is None
    refused("INVALID_REPLICATION_FACTOR", futures[bad])


def test_partitions_are_added_and_used(server: Server) -> None:
    name = server.new_topic(2)
    produce(server, name, [b"old"])
    server.admin.create_partitions([NewPartitions(name, 5)])[name].result(PATIENCE_S)
    wait_until(lambda: len(server.admin.list_topics(name, timeout=PATIENCE_S).topics[name].partitions) == 5)
    produce(server, name, [b"new"], partition=4)
    assert sorted(message.value() for message in read_topic(server, name, 5)) == [b"new", b"old"]
    refused("INVALID_PARTITIONS", server.admin.create_partitions([NewPartitions(name, 3)])[name])


def test_a_topics_configs_say_whence_they_come(server: Server) -> None:
    name = server.new_topic(retention_ms="60000")
    entries = configs(server, ResourceType.TOPIC, name)
    own, default = entries["retention.ms"], entries["segment.bytes"]
    assert (own.value, own.source, own.is_default) == ("60000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value, False)
    assert "retention.ms" in {synonym.name for synonym in own.synonyms.values()}
    assert (default.value, default.is_default, default.is_read_only) == ("1073741824", True, False)
    assert entries["cleanup.policy"].value == "delete"
    assert entries["max.message.bytes"].value == "1048588"
    assert len(entries) >= 25


def test_a_brokers_configs_are_told(server: Server) -> None:
    broker = sorted(server.admin.list_topics(timeout=PATIENCE_S).brokers)[0]
    entries = configs(server, ResourceType.BROKER, str(broker))
    assert entries["num.partitions"].value == "1"
    assert entries["auto.create.topics.enable"].value == "true"
    assert entries["log.retention.hours"].value == "168"


def test_configs_are_changed_one_by_one(server: Server) -> None:
    name = server.new_topic(retention_ms="60000", segment_ms="70000")
    changes = [
        ("retention.ms", "80000", AlterConfigOpType.SET),
        ("segment.ms", None, AlterConfigOpType.DELETE),
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    ]
    # Tiering, which is on by default here, and compaction exclude each other.
    changes.insert(0, ("remote.storage.enable", "false", AlterConfigOpType.SET))
    set_configs(server, name, changes).result(PATIENCE_S)

    def changed() -> bool:
        entries = configs(server, ResourceType.TOPIC, name)
        return entries["retention.ms"].value == "80000" and entries["segment.ms"].is_default

    wait_until(changed)
    assert configs(server, ResourceType.TOPIC, name)["cleanup.policy"].value == "delete,compact"
    set_configs(server, name, [("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)]).result(PATIENCE_S)
    wait_until(lambda: configs(server, ResourceType.TOPIC, name)["cleanup.policy"].value == "compact")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.m", "1", AlterConfigOpType.SET), "INVALID_CONFIG"),
        (("retention.ms", "soon", AlterConfigOpType.SET), "INVALID_CONFIG"),
        (("retention.ms", "1", AlterConfigOpType.APPEND), "INVALID_CONFIG"),
    ],
    ids=["unknown", "no number", "no list"],
)
def test_a_change_that_makes_no_sense_is_refused(
    server: Server, change: tuple[str, str, AlterConfigOpType], code: str
) -> None:
    name = server.new_topic(retention_ms="60000")
    refused(code, set_configs(server, name, [change]))
    assert configs(server, ResourceType.TOPIC, name)["retention.ms"].value == "60000"


def test_configs_of_an_unknown_topic_are_an_error(server: Server, group_id: str) -> None:
    (future,) = server.admin.describe_configs([ConfigResource(ResourceType.TOPIC, f"no-{group_id}")]).values()
    refused("UNKNOWN_TOPIC_OR_PART", future)


def test_the_cluster_is_described(server: Server) -> None:
    described = server.admin.describe_cluster().result(PATIENCE_S)
    assert len(described.nodes) == server.brokers
    assert described.controller.id in {node.id for node in described.nodes}
    assert described.cluster_id == server.admin.list_topics(timeout=PATIENCE_S).cluster_id


def test_offsets_are_listed_by_kind_and_time(server: Server) -> None:
    name = server.new_topic(retention_ms="-1")
    times = [START + delta for delta in (0, 5_000, 3_000)]
    produce(server, name, [Sample(None, b"x", [], each) for each in times])
    asked = [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(START + 1), 1),
        (OffsetSpec.for_timestamp(START + 9_000), -1),
    ]
    for spec, offset in asked:
        (future,) = server.admin.list_offsets({TopicPartition(name, 0): spec}).values()
        assert future.result(PATIENCE_S).offset == offset, spec


def test_records_are_deleted_from_the_beginning(server: Server) -> None:
    name = server.new_topic()
    produce(server, name, [b"%d" % number for number in range(10)])
    (future,) = server.admin.delete_records([TopicPartition(name, 0, 7)]).values()
    assert future.result(PATIENCE_S).low_watermark == 7
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE_S) == (7, 10)
    consumer.close()
    assert [message.value() for message in read_topic(server, name, auto_offset_reset="earliest")] == [b"7", b"8", b"9"]
    (future,) = server.admin.delete_records([TopicPartition(name, 0, 11)]).values()
    refused("OFFSET_OUT_OF_RANGE", future)


def test_a_group_is_seen_changed_and_deleted(server: Server, group_id: str) -> None:
    name = server.new_topic(2)
    produce(server, name, [b"a", b"b"])
    config = {"bootstrap.servers": server.bootstrap_servers, "group.id": group_id, "client.id": "the-app"}
    consumer = Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([name])
    wait_until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(0.05))
    listed = {group.group_id: group for group in server.admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert (listed[group_id].state, listed[group_id].type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC)
    described = server.admin.describe_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    (member,) = described.members
    assert (described.partition_assignor, member.client_id) == ("range", "the-app")
    assert sorted(part.partition for part in member.assignment.topic_partitions) == [0, 1]
    refused("NON_EMPTY_GROUP", server.admin.delete_consumer_groups([group_id])[group_id])
    consumer.close()

    wanted = ConsumerGroupTopicPartitions(group_id, [TopicPartition(name, 0, 1)])
    server.admin.alter_consumer_group_offsets([wanted])[group_id].result(PATIENCE_S)
    everything = ConsumerGroupTopicPartitions(group_id)
    found = server.admin.list_consumer_group_offsets([everything])[group_id].result(PATIENCE_S).topic_partitions
    assert [(part.topic, part.partition, part.offset) for part in found] == [(name, 0, 1)]
    server.admin.delete_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    refused("GROUP_ID_NOT_FOUND", server.admin.delete_consumer_groups([group_id])[group_id])
