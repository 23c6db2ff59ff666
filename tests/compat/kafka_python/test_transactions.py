"""Transactions of kafka-python."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.support.compat import Server, produce

pytestmark = pytest.mark.xdist_group("compat")


def committed(server: Server, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=server.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
    )
    consumer.assign([TopicPartition(topic, 0)])
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    consumer.close()
    return values


def test_kafka_python_commits_and_aborts(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=group_id)
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        producer.send(topic, b"%d" % number, partition=0).get(20)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close(timeout=5)
    produce(server, topic, [b"end"])
    assert committed(server, topic, 4) == [b"0", b"2", b"4", b"end"]


def test_kafka_python_commits_offsets_with_its_transaction(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    place = TopicPartition(topic, 0)
    produce(server, topic, [b"one", b"two", b"three"])
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, transactional_id=group_id)
    producer.init_transactions()
    for offset, commit in ((2, True), (3, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(offset, "", -1)}, group_id)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close(timeout=5)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap_servers, group_id=group_id)
    consumer.assign([place])
    assert consumer.committed(place) == 2
    consumer.close()
