"""Producing with librdkafka, and reading back what was produced."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaException,
    Message,
    Producer,
)

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.records.batch import BatchHeader, parse_header, split_batches
from tests.support.compat import (
    CODECS,
    PATIENCE_S,
    Server,
    produce,
    read_topic,
    sample_of,
    samples,
)

pytestmark = pytest.mark.xdist_group("compat")

MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of `max.message.bytes`: a whole batch with its header."""
AROUND_A_VALUE = 61 + 3 + 1 + 1 + 1 + 1 + 3 + 1
"""Bytes of a batch around its only value of about 1 MB: the batch's header, then the record's length, attributes, time
delta, offset delta, key, the value's length, headers."""


def batches(server: Server, topic: str) -> list[BatchHeader]:
    """The headers of the batches that the broker keeps."""
    with Client(server.bootstrap_servers) as client:
        records = client.fetch(TopicPartition(topic, 0), 0, max_bytes=50_000_000).records
    return [parse_header(batch) for batch in split_batches(memoryview(records))]


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(server: Server, codec: str, idempotent: bool) -> None:
    topic = server.new_topic(retention_ms="-1")
    sent = samples()
    acknowledged = produce(server, topic, sent, compression_type=codec, enable_idempotence=idempotent)
    assert [message.offset() for message in acknowledged] == list(range(len(sent)))
    read = read_topic(server, topic)
    assert [message.offset() for message in read] == list(range(len(sent)))
    assert [sample_of(message) for message in read] == sent
    assert {message.timestamp()[0] for message in read} == {TIMESTAMP_CREATE_TIME}
    kept = batches(server, topic)
    assert codec in {CODECS[header.codec] for header in kept}, "the client's batches are kept as they came"
    assert all((header.producer_id >= 0) == idempotent for header in kept)


def test_many_records_in_flight_arrive_once_and_in_order(server: Server) -> None:
    """Small batches, five requests under way: sequence numbers keep them in order."""
    topic = server.new_topic()
    values = [b"%d" % number for number in range(20_000)]
    options: dict[str, Any] = {"batch_num_messages": 50, "max_in_flight": 5, "linger_ms": 0, "enable_idempotence": True}
    produce(server, topic, values, queue_buffering_max_messages=len(values), **options)
    assert [message.value() for message in read_topic(server, topic)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(server: Server, acks: str) -> None:
    topic = server.new_topic()
    acknowledged = produce(server, topic, [b"%d" % number for number in range(1_000)], acks=acks)
    if acks == "0":
        assert {message.offset() for message in acknowledged} == {None}
    else:
        assert [message.offset() for message in acknowledged] == list(range(1_000))
    # Without acknowledgements the client does not know when the last record is in.
    read: list[Message] = []
    for _ in range(100):
        read = read_topic(server, topic)
        if len(read) == 1_000:
            break
    assert [message.value() for message in read] == [b"%d" % number for number in range(1_000)]


def test_a_record_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(server: Server) -> None:
    topic = server.new_topic()
    largest = MAX_MESSAGE_BYTES - AROUND_A_VALUE
    value = random.Random(1).randbytes(largest)
    produce(server, topic, [value], message_max_bytes=2_000_000)
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        produce(server, topic, [value + b"!"], message_max_bytes=2_000_000)
    (header,) = batches(server, topic)
    assert header.size_in_bytes == MAX_MESSAGE_BYTES
    assert [message.value() for message in read_topic(server, topic)] == [value]


def test_a_topics_own_limit_holds(server: Server) -> None:
    topic = server.new_topic(max_message_bytes="12000000")
    values = [random.Random(size).randbytes(size) for size in (11_000_000, 10, 5_000_000)]
    produce(server, topic, values, message_max_bytes=12_000_000)
    read = read_topic(server, topic, fetch_message_max_bytes=100_000)
    assert [message.value() for message in read] == values, "a first batch is sent whole, however small the fetch"
    small = server.new_topic(max_message_bytes="1000")
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        produce(server, small, [os.urandom(2_000)])
    produce(server, small, [b"fits"])


def test_the_broker_stamps_where_the_topic_says_so(server: Server) -> None:
    topic = server.new_topic(message_timestamp_type="LogAppendTime")
    acknowledged = produce(server, topic, samples()[:3])
    read = read_topic(server, topic)
    assert {message.timestamp()[0] for message in read} == {TIMESTAMP_LOG_APPEND_TIME}
    assert all(message.timestamp()[1] > 1_700_000_000_000 for message in read)
    assert [message.timestamp() for message in acknowledged] == [message.timestamp() for message in read]


def test_a_time_far_in_the_future_is_refused(server: Server) -> None:
    topic = server.new_topic()
    ahead = samples()[0]._replace(timestamp=33_000_000_000_000)
    with pytest.raises(AssertionError, match="INVALID_TIMESTAMP"):
        produce(server, topic, [ahead], enable_idempotence=False)
    produce(server, topic, [b"now"])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_broker_compresses_where_the_topic_says_so(server: Server, codec: str) -> None:
    topic = server.new_topic(compression_type=codec, retention_ms="-1")
    sent = samples()
    produce(server, topic, sent, compression_type="none")
    assert {CODECS[header.codec] for header in batches(server, topic)} == {codec}
    assert [sample_of(message) for message in read_topic(server, topic)] == sent


def test_a_topic_is_made_by_producing_to_it(server: Server, group_id: str) -> None:
    topic = f"made-{group_id}"
    produce(server, topic, [b"first"])
    assert [message.value() for message in read_topic(server, topic)] == [b"first"]


def test_a_partition_that_is_not_there_is_refused(server: Server) -> None:
    topic = server.new_topic(2)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    producer.produce(topic, b"there", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
        producer.produce(topic, b"not there", partition=2)


def test_a_client_that_does_not_ask_for_versions_is_served(server: Server) -> None:
    """Old clients are told the broker's release and use what that release had."""
    topic = server.new_topic()
    old = {"api_version_request": False, "broker_version_fallback": "0.11.0"}
    produce(server, topic, samples()[:12], compression_type="gzip", **old)
    assert [sample_of(message) for message in read_topic(server, topic, **old)] == samples()[:12]
