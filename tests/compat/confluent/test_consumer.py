"""Reading with librdkafka: places in a partition by offset and by time, and what stands at its ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tests.support.compat import PATIENCE_S, Sample, Server, produce, wait_until

pytestmark = pytest.mark.xdist_group("compat")

MINUTE = 60_000
START = 1_600_000_000_000


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    """Three partitions; in each, ten records a minute apart, in batches of three."""
    name = server.new_topic(3, retention_ms="-1")
    for partition in range(3):
        records = [Sample(None, b"%d" % number, [], START + number * MINUTE) for number in range(10)]
        produce(server, name, records, partition=partition, batch_num_messages=3)
    return name


@pytest.fixture
def consumer(server: Server, group_id: str) -> Iterator[Consumer]:
    made = new_consumer(server, group_id)
    yield made
    made.close()


def new_consumer(server: Server, group_id: str, **options: Any) -> Consumer:
    config = {"bootstrap.servers": server.bootstrap_servers, "group.id": group_id, "enable.auto.commit": False}
    return Consumer(config | {"enable.partition.eof": True} | options)


def next_messages(consumer: Consumer, count: int) -> list[Message]:
    """So many records; the end of a partition is none."""
    found: list[Message] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message)
        elif message is not None and message.error().code() != KafkaError._PARTITION_EOF:
            raise KafkaException(message.error())

    wait_until(lambda: len(found) >= count, poll)
    return found


def test_topics_are_listed_with_their_partitions_and_leaders(server: Server, consumer: Consumer, topic: str) -> None:
    listed = consumer.list_topics(timeout=PATIENCE_S)
    assert len(listed.brokers) == server.brokers
    assert {f"{broker.host}:{broker.port}" for broker in listed.brokers.values()} == set(
        server.bootstrap_servers.split(",")
    )
    partitions = listed.topics[topic].partitions
    assert sorted(partitions) == [0, 1, 2]
    for metadata in partitions.values():
        assert metadata.error is None
        assert metadata.replicas == metadata.isrs == [metadata.leader]
        assert metadata.leader in listed.brokers
    if server.brokers >= 3:
        assert len({metadata.leader for metadata in partitions.values()}) == 3, "every broker leads one"


def test_an_unknown_topic_is_reported_and_not_made_by_reading(server: Server, group_id: str) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        reader = new_consumer(server, group_id)
        reader.subscribe([f"nowhere-{group_id}"])
        next_messages(reader, 1)
    reader.close()
    assert f"nowhere-{group_id}" not in server.admin.list_topics(timeout=PATIENCE_S).topics


def test_both_ends_are_known(consumer: Consumer, topic: str) -> None:
    assert consumer.get_watermark_offsets(TopicPartition(topic, 1), timeout=PATIENCE_S) == (0, 10)


@pytest.mark.parametrize(
    ("minutes", "offset"),
    [(-100, 0), (0, 0), (0.5, 1), (4, 4), (4.1, 5), (9, 9), (9.1, -1)],
    ids=["long before", "the first", "just after", "exactly", "between", "the last", "after the last"],
)
def test_offsets_are_found_by_time(consumer: Consumer, topic: str, minutes: float, offset: int) -> None:
    asked = [TopicPartition(topic, number, START + int(minutes * MINUTE)) for number in range(3)]
    assert [part.offset for part in consumer.offsets_for_times(asked, timeout=PATIENCE_S)] == [offset] * 3


@pytest.mark.parametrize(
    ("place", "first"),
    [(OFFSET_BEGINNING, 0), (0, 0), (1, 1), (4, 4), (9, 9), (-2003, 7)],
    ids=["beginning", "0", "1", "inside a batch", "the last", "three before the end"],
)
def test_reading_begins_where_it_is_told(consumer: Consumer, topic: str, place: int, first: int) -> None:
    consumer.assign([TopicPartition(topic, 2, place)])
    read = next_messages(consumer, 10 - first)
    assert [(message.offset(), message.value()) for message in read] == [
        (number, b"%d" % number) for number in range(first, 10)
    ]


def test_a_reader_at_the_end_gets_what_comes(server: Server, consumer: Consumer) -> None:
    topic = server.new_topic()
    produce(server, topic, [b"before"])
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    ends: list[Message] = []
    wait_until(lambda: ends, lambda: ends.extend(consumer.consume(1, 0.1)))
    assert ends[0].error().code() == KafkaError._PARTITION_EOF
    for number in range(5):
        produce(server, topic, [b"%d" % number])
        (message,) = next_messages(consumer, 1)
        assert (message.offset(), message.value()) == (number + 1, b"%d" % number)
        assert message.leader_epoch() == 0


def test_a_reader_may_pause_and_jump(consumer: Consumer, topic: str) -> None:
    parts = [TopicPartition(topic, number, 0) for number in range(2)]
    consumer.assign(parts)
    next_messages(consumer, 20)
    consumer.pause(parts[:1])
    for part in parts:
        consumer.seek(TopicPartition(topic, part.partition, 5))
    assert {message.partition() for message in next_messages(consumer, 5)} == {1}
    consumer.resume(parts[:1])
    assert [message.offset() for message in next_messages(consumer, 5)] == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 10)])
def test_an_offset_that_is_not_there_leads_to_the_chosen_end(
    server: Server, group_id: str, topic: str, reset: str, first: int
) -> None:
    reader = new_consumer(server, group_id, **{"auto.offset.reset": reset})
    reader.assign([TopicPartition(topic, 0, 1_000)])
    seen: list[Message] = []
    wait_until(lambda: seen, lambda: seen.extend(reader.consume(1, 0.1)))
    assert seen[0].offset() == first
    reader.close()


def test_an_offset_that_is_not_there_is_an_error_where_it_must_be(server: Server, group_id: str, topic: str) -> None:
    reader = new_consumer(server, group_id, **{"auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, 0, 1_000)])
    with pytest.raises(KafkaException, match="_AUTO_OFFSET_RESET"):
        next_messages(reader, 1)
    reader.close()


def test_committed_offsets_are_kept_and_taken_back(server: Server, group_id: str, topic: str) -> None:
    reader = new_consumer(server, group_id)
    parts = [TopicPartition(topic, number) for number in range(3)]
    assert [part.offset for part in reader.committed(parts, timeout=PATIENCE_S)] == [OFFSET_INVALID] * 3
    reader.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 2, 10)], asynchronous=False)
    reader.close()
    again = new_consumer(server, group_id)
    assert [part.offset for part in again.committed(parts, timeout=PATIENCE_S)] == [4, OFFSET_INVALID, 10]
    again.assign(parts[:1])
    assert next_messages(again, 1)[0].offset() == 4
    again.close()


def test_committed_is_all_that_a_reader_of_committed_records_waits_for(
    server: Server, group_id: str, topic: str
) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        reader = new_consumer(server, group_id, **{"isolation.level": isolation})
        reader.assign([TopicPartition(topic, 0, 0)])
        assert len(next_messages(reader, 10)) == 10
        reader.close()
