"""Transactions of librdkafka, which follows their first version: its partitions are verified by their leaders."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.compat import PATIENCE_S, Server, produce, read_topic, wait_until

pytestmark = pytest.mark.xdist_group("compat")


def transactional(server: Server, transactional_id: str, **options: object) -> Producer:
    config = {"bootstrap.servers": server.bootstrap_servers, "transactional.id": transactional_id, **options}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    return producer


def committed(server: Server, topic: str, partitions: int = 1) -> list[bytes | None]:
    messages = read_topic(server, topic, partitions, isolation_level="read_committed")
    return [message.value() for message in messages]


def uncommitted(server: Server, topic: str, partitions: int = 1) -> list[bytes | None]:
    messages = read_topic(server, topic, partitions, isolation_level="read_uncommitted")
    return [message.value() for message in messages]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(server: Server, group_id: str) -> None:
    topic = server.new_topic(3)
    producer = transactional(server, group_id)
    kept: list[bytes] = []
    for number in range(10):
        producer.begin_transaction()
        values = [f"{number}-{partition}".encode() for partition in range(3)]
        for partition, value in enumerate(values):
            producer.produce(topic, value, partition=partition)
        if number % 3:
            producer.commit_transaction(PATIENCE_S)
            kept += values
        else:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
    assert sorted(committed(server, topic, 3)) == sorted(kept)
    assert len(uncommitted(server, topic, 3)) == 30


def test_what_follows_an_open_transaction_waits_for_its_end(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    produce(server, topic, [b"before"])
    producer = transactional(server, group_id)
    producer.begin_transaction()
    producer.produce(topic, b"inside", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    produce(server, topic, [b"after"])
    assert committed(server, topic) == [b"before"]
    assert uncommitted(server, topic) == [b"before", b"inside", b"after"]
    producer.commit_transaction(PATIENCE_S)
    assert committed(server, topic) == [b"before", b"inside", b"after"]


def test_transactions_span_segments(server: Server, group_id: str) -> None:
    topic = server.new_topic(segment_bytes="1048576")
    producer = transactional(server, group_id)
    kept = []
    for number in range(6):
        producer.begin_transaction()
        values = [b"%d-%d-" % (number, index) + b"x" * 100_000 for index in range(12)]
        for value in values:
            producer.produce(topic, value, partition=0)
            assert producer.flush(PATIENCE_S) == 0
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            kept += values
    assert committed(server, topic) == kept


def test_a_second_instance_fences_the_first(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    first = transactional(server, group_id)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    first.flush(PATIENCE_S)
    second = transactional(server, group_id)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(PATIENCE_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(PATIENCE_S)
    assert committed(server, topic) == [b"of the second"]


def test_a_transaction_whose_time_is_over_is_aborted(server: Server, group_id: str) -> None:
    topic = server.new_topic()
    forgetful = transactional(server, group_id, **{"transaction.timeout.ms": 1_000})
    forgetful.begin_transaction()
    forgetful.produce(topic, b"left open", partition=0)
    forgetful.flush(PATIENCE_S)
    produce(server, topic, [b"after"])
    wait_until(lambda: committed(server, topic) == [b"after"])
    with pytest.raises(KafkaException):
        forgetful.commit_transaction(PATIENCE_S)


def test_consume_transform_produce_counts_each_record_once(server: Server, group_id: str) -> None:
    """Each life reads ten records or more, aborts once, and ends without another word."""
    source, sink = server.new_topic(2), server.new_topic()
    inputs = [b"%d" % number for number in range(40)]
    produce(server, source, inputs, partition=None)
    done = 0
    for life in range(1, 5):
        producer, consumer = transactional(server, group_id), reader_of(server, source, group_id)
        has_aborted = False
        try:
            while done < life * 10:
                read = [message for message in consumer.consume(5, 1.0) if message.error() is None]
                if not read:
                    continue
                producer.begin_transaction()
                for message in read:
                    producer.produce(sink, b"out of " + (message.value() or b""), partition=0)
                metadata = consumer.consumer_group_metadata()
                producer.send_offsets_to_transaction(next_offsets(read), metadata, PATIENCE_S)
                if has_aborted:
                    producer.commit_transaction(PATIENCE_S)
                    done += len(read)
                else:
                    producer.abort_transaction(PATIENCE_S)
                    has_aborted = True
                    rewind(consumer, read)
        finally:
            consumer.close()
    assert Counter(committed(server, sink)) == Counter(b"out of " + value for value in inputs)


def reader_of(server: Server, topic: str, group_id: str) -> Consumer:
    config = {"bootstrap.servers": server.bootstrap_servers, "group.id": group_id, "enable.auto.commit": False}
    stable = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({**config, **stable})
    consumer.subscribe([topic])
    return consumer


def next_offsets(read: list[Message]) -> list[TopicPartition]:
    ends: dict[tuple[str, int], int] = {}
    for message in read:
        place = (message.topic() or "", message.partition() or 0)
        ends[place] = max(ends.get(place, 0), (message.offset() or 0) + 1)
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]


def rewind(consumer: Consumer, read: list[Message]) -> None:
    """As after an abort: read again from the committed offsets."""
    starts: dict[tuple[str, int], int] = {}
    for message in read:
        place = (message.topic() or "", message.partition() or 0)
        starts[place] = min(starts.get(place, 1 << 60), message.offset() or 0)
    for (topic, partition), offset in starts.items():
        consumer.seek(TopicPartition(topic, partition, offset))
