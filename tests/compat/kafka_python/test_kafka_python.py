"""kafka-python: its own codecs, partitioner, group and administration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.compat import (
    CODECS,
    KEYS,
    PATIENCE_S,
    Sample,
    Server,
    produce,
    read_topic,
    sample_of,
    samples,
    wait_until,
)

pytestmark = pytest.mark.xdist_group("compat")

# On the wire key and value may both be null, and a header's value too, but this client sends neither.
SAMPLES = [
    sample
    for sample in samples()
    if (sample.key, sample.value) != (None, None) and all(value is not None for _, value in sample.headers)
]


def send_all(server: Server, topic: str, records: list[Sample], **options: Any) -> list[Any]:
    """To partition 0; what the broker acknowledged."""
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, **options)
    try:
        futures = [
            producer.send(topic, each.value, each.key, each.headers, partition=0, timestamp_ms=each.timestamp)
            for each in records
        ]
        return [future.get(PATIENCE_S) for future in futures]
    finally:
        producer.close()


def new_consumer(server: Server, group_id: str | None = None, **options: Any) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=server.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        **options,
    )


POLL_MS = 250
"""A poll that ends between the answer to SyncGroup and its handling loses the assignment: client 3.0.12, any server."""


def subscribe(consumer: KafkaConsumer, topic: str) -> None:
    """Once the client knows the topic: 3.0.12 assigns nothing, and never looks again, when an answer to an older
    question about topics comes while it assigns; any server."""
    wait_until(lambda: consumer.partitions_for_topic(topic))
    consumer.subscribe([topic])


def poll_into(found: list[Any], *consumers: KafkaConsumer) -> None:
    for consumer in consumers:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            found.extend(records)


@pytest.fixture
def admin(server: Server) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_go_from_this_client_to_another(server: Server, codec: str, idempotent: bool) -> None:
    topic = server.new_topic(retention_ms="-1")
    compression = None if codec == "none" else codec
    sent = send_all(server, topic, SAMPLES, compression_type=compression, enable_idempotence=idempotent)
    assert [metadata.offset for metadata in sent] == list(range(len(SAMPLES)))
    assert [sample_of(message) for message in read_topic(server, topic)] == SAMPLES


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_to_this_client_from_another(server: Server, codec: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    produce(server, topic, samples(), compression_type=codec)
    consumer = new_consumer(server)
    consumer.assign([TopicPartition(topic, 0)])
    read: list[Any] = []
    wait_until(lambda: len(read) >= len(samples()), lambda: poll_into(read, consumer))
    consumer.close()
    assert [Sample(each.key, each.value, list(each.headers), each.timestamp) for each in read] == samples()


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(server: Server, acks: Any) -> None:
    topic = server.new_topic(retention_ms="-1")
    send_all(server, topic, SAMPLES, acks=acks, enable_idempotence=False)
    wait_until(lambda: len(read_topic(server, topic)) == len(SAMPLES))


def test_keys_go_to_the_same_partitions_as_elsewhere(server: Server) -> None:
    partitions = 7
    topic = server.new_topic(partitions)
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers)
    for key in KEYS:
        producer.send(topic, b"", key)
    producer.flush(PATIENCE_S)
    producer.close()
    ours = {message.key(): message.partition() for message in read_topic(server, topic, partitions)}
    other = server.new_topic(partitions)
    produce(server, other, [Sample(key, b"", [], 0) for key in KEYS], partition=None, partitioner="murmur2_random")
    assert ours == {message.key(): message.partition() for message in read_topic(server, other, partitions)}
    assert len(set(ours.values())) == partitions


def test_two_members_read_every_record_once_and_a_third_goes_on(server: Server, group_id: str) -> None:
    topic = server.new_topic(4)
    for partition in range(4):
        produce(server, topic, [b"%d" % number for number in range(10)], partition=partition)
    read: list[Any] = []
    members = [new_consumer(server, group_id)]
    subscribe(members[0], topic)
    wait_until(lambda: len(read) >= 40, lambda: poll_into(read, *members))
    members[0].commit()
    members.append(new_consumer(server, group_id))
    subscribe(members[1], topic)
    wait_until(lambda: [len(each.assignment()) for each in members] == [2, 2], lambda: poll_into(read, *members))
    for partition in range(4):
        produce(server, topic, [b"%d" % number for number in range(10, 20)], partition=partition)
    wait_until(lambda: len(read) >= 80, lambda: poll_into(read, *members))
    for member in members:
        member.commit()
        member.close()
    third = new_consumer(server, group_id)
    subscribe(third, topic)
    produce(server, topic, [b"20"])
    wait_until(lambda: len(read) >= 81, lambda: poll_into(read, third))
    third.close()
    assert len(read) == len({(each.partition, each.offset) for each in read}) == 81


def test_offsets_are_committed_with_a_note_and_found_by_time(server: Server, group_id: str) -> None:
    topic = server.new_topic(retention_ms="-1")
    records = [Sample(None, b"%d" % number, [], 1_600_000_000_000 + number) for number in range(3)]
    produce(server, topic, records)
    part = TopicPartition(topic, 0)
    consumer = new_consumer(server, group_id)
    consumer.assign([part])
    assert consumer.beginning_offsets([part]) == {part: 0}
    assert consumer.end_offsets([part]) == {part: 3}
    found = consumer.offsets_for_times({part: records[1].timestamp})[part]
    assert (found.offset, found.timestamp) == (1, records[1].timestamp)
    consumer.commit({part: OffsetAndMetadata(2, "a note", 0)})
    committed = consumer.committed(part, metadata=True)
    assert (committed.offset, committed.metadata) == (2, "a note")
    consumer.seek_to_beginning(part)
    assert consumer.position(part) == 0
    consumer.close()


def test_topics_and_their_configs_are_administered(server: Server, admin: KafkaAdminClient, group_id: str) -> None:
    name = f"topic-{group_id}"
    new = {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "60000"}}}
    admin.create_topics(new, wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(new)
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({f"more-{name}": {"num_partitions": 1, "replication_factor": 99}})
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert [part["partition_index"] for part in described["partitions"]] == [0, 1]
    admin.create_partitions({name: 3})
    wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3)
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    assert "60000" in str(admin.describe_configs([resource]))
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "70000"})])
    wait_until(lambda: "70000" in str(admin.describe_configs([resource])))
    admin.delete_topics([name])
    wait_until(lambda: name not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_groups_and_offsets_are_administered(server: Server, admin: KafkaAdminClient, group_id: str) -> None:
    topic = server.new_topic(2)
    part = TopicPartition(topic, 1)
    produce(server, topic, [b"%d" % number for number in range(10)], partition=1)
    assert admin.list_partition_offsets({part: -1})[part].offset == 10
    admin.delete_records({part: 4})
    assert admin.list_partition_offsets({part: -2})[part].offset == 4
    consumer = new_consumer(server, group_id)
    subscribe(consumer, topic)
    wait_until(lambda: len(consumer.assignment()) == 2, lambda: consumer.poll(timeout_ms=POLL_MS))
    assert group_id in str(admin.list_groups())
    assert "Stable" in str(admin.describe_groups([group_id]))
    consumer.close()
    admin.alter_group_offsets(group_id, {part: OffsetAndMetadata(7, "", -1)})
    assert admin.list_group_offsets([group_id])[group_id][part].offset == 7
    admin.delete_groups([group_id])
    assert group_id not in str(admin.list_groups())


def test_the_cluster_is_described(server: Server, admin: KafkaAdminClient) -> None:
    described = admin.describe_cluster()
    addresses = {f"{broker['host']}:{broker['port']}" for broker in described["brokers"]}
    assert addresses == set(server.bootstrap_servers.split(","))
    assert described["controller_id"] in {broker["broker_id"] for broker in described["brokers"]}
    folders = admin.describe_log_dirs()
    assert len(folders) == server.brokers


def test_another_releases_requests_are_understood(server: Server) -> None:
    """Told that the broker is of 2.1, the client uses what that had."""
    topic = server.new_topic(retention_ms="-1")
    send_all(server, topic, SAMPLES, api_version=(2, 1), enable_idempotence=False)
    consumer = new_consumer(server, api_version=(2, 1))
    consumer.assign([TopicPartition(topic, 0)])
    read: list[Any] = []
    wait_until(lambda: len(read) >= len(SAMPLES), lambda: poll_into(read, consumer))
    consumer.close()
    assert [each.value for each in read] == [each.value for each in SAMPLES]
