from __future__ import annotations

import struct
import time
import uuid

import pytest
from crc32c import crc32c

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import check_batch, parse_header, split_batches
from appliance.records.reader import read_records
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.messages.produce import PartitionProduceData, ProduceResponse, TopicProduceData
from tests.support.broker import RunningCluster
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, produce_request, values_of
from tests.support.server import is_closed, receive_frame

VERSIONS = range(3, 14)


def connect(cluster: RunningCluster) -> Connection:
    return Connection("127.0.0.1", cluster.brokers[1].port, client_id="other", timeout_ms=10_000)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_and_answers_with_the_offset(connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    for round_number in range(3):
        answer = produce(connection, topic, batch_of(b"a", b"b"), version=version)
        assert answer.error_code == 0
        assert answer.base_offset == 2 * round_number
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert values_of(fetch(connection, topic, 0).records) == [b"a", b"b"] * 3


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_acks_1_and_all_are_answered_when_written(connection: Connection, version: int, acks: int) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"x"), version=version, acks=acks).base_offset == 0
    assert list_offset(connection, topic, -1).offset == 1


@pytest.mark.parametrize("version", [3, 9, 13])
def test_acks_0_is_not_answered_but_what_follows_sees_it(connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    connection.send(produce_request(topic, {0: batch_of(b"x")}, acks=0), version)
    assert list_offset(connection, topic, -1).offset == 1


def test_an_error_with_acks_0_ends_the_connection(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection)
    with connect(cluster) as other:
        other.send(produce_request(topic, {5: batch_of(b"x")}, acks=0), 9)
        assert other._socket is not None
        assert is_closed(other._socket)


def test_a_partition_that_fails_does_not_stop_its_neighbours(connection: Connection) -> None:
    topic = new_topic(connection, partitions=3)
    damaged = bytearray(batch_of(b"damaged"))
    damaged[-1] ^= 1
    records = {0: batch_of(b"first"), 1: bytes(damaged), 2: batch_of(b"third"), 7: batch_of(b"nowhere")}
    response = connection.call(produce_request(topic, records), 9)
    codes = {answer.index: answer.error_code for answer in response.responses[0].partition_responses}
    assert codes == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [list_offset(connection, topic, -1, partition=number).offset for number in range(3)] == [1, 0, 1]


def test_many_topics_and_partitions_in_one_request(connection: Connection) -> None:
    topics = [new_topic(connection, partitions=4) for _ in range(5)]
    request = produce_request(topics[0], {})
    request.topic_data = [
        TopicProduceData(
            name=topic.name,
            partition_data=[PartitionProduceData(index=index, records=batch_of(b"%d" % index)) for index in range(4)],
        )
        for topic in topics
    ]
    response = connection.call(request, 9)
    assert [topic.name for topic in response.responses] == [topic.name for topic in topics]
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0)] * 20


@pytest.mark.parametrize("version", [3, 9, 13])
def test_an_unknown_topic_is_said_so(connection: Connection, version: int) -> None:
    nobody = CreatableTopicResult(name="nobody", topic_id=uuid.uuid4())
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version == 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(connection, nobody, batch_of(b"x"), version=version).error_code == expected


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_beyond_what_exists_are_refused(connection: Connection, acks: int) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("version", [3, 7, 9, 13])
def test_bad_batches_are_refused_in_every_way_of_a_request(connection: Connection, version: int) -> None:
    topic = new_topic(connection, configs={"max.message.bytes": "2000"})
    assert produce(connection, topic, batch_of(b"fine"), version=version).error_code == 0
    crc_differs = bytearray(batch_of(b"x"))
    crc_differs[-1] ^= 1
    count_differs = bytearray(batch_of(b"x", b"y"))
    struct.pack_into(">i", count_differs, 57, 3)
    struct.pack_into(">I", count_differs, 17, crc32c(memoryview(count_differs)[21:]))
    old_magic = bytearray(batch_of(b"x"))
    old_magic[16] = 1
    for records, code in [
        (bytes(crc_differs), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"x")[:-1], ErrorCode.INVALID_RECORD),
        (b"not a batch", ErrorCode.INVALID_RECORD),
        (bytes(count_differs), ErrorCode.INVALID_RECORD),
        (bytes(old_magic), ErrorCode.INVALID_RECORD),
        (batch_of(b"x") + batch_of(b"y"), ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (batch_of(b"x" * 3_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch_of(b"x", timestamp_ms=int(time.time() * 1000) + 10 * 86_400_000), ErrorCode.INVALID_TIMESTAMP),
    ]:
        answer = produce(connection, topic, records, version=version)
        assert (answer.error_code, answer.base_offset) == (code, -1), records
        if version >= 8:
            assert answer.error_message
    assert produce(connection, topic, batch_of(b"fine"), version=version).base_offset == 1


def test_log_append_time_replaces_what_the_client_said(connection: Connection) -> None:
    topic = new_topic(connection, configs={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    answer = produce(connection, topic, batch_of(b"x", timestamp_ms=5))
    assert before_ms <= answer.log_append_time_ms <= int(time.time() * 1000)
    records = fetch(connection, topic, 0).records
    assert records is not None
    header = parse_header(records)
    assert header.timestamp_type == 1
    assert header.max_timestamp == answer.log_append_time_ms
    assert crc32c(memoryview(records)[21:]) == header.crc


def test_compacted_topics_name_the_records_without_key(connection: Connection) -> None:
    topic = new_topic(connection, configs={"cleanup.policy": "compact"})
    answer = produce(connection, topic, batch_of(b"x", b"y"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    assert produce(connection, topic, batch_of(b"x", key=b"k")).error_code == 0


def test_clients_do_not_write_to_internal_topics(connection: Connection) -> None:
    topic = new_topic(connection, name="__consumer_offsets", configs={"cleanup.policy": "compact"})
    answer = produce(connection, topic, batch_of(b"x", key=b"k"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_many_requests_in_flight_are_answered_in_order(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection)
    count = 2_000
    with connect(cluster) as other:
        sock = other._socket
        assert sock is not None
        for number in range(count):
            version = (9, 3, 13, 7)[number % 4]
            sock.sendall(encode_request(produce_request(topic, {0: batch_of(b"x")}), version, number, "t"))
        for number in range(count):
            version = (9, 3, 13, 7)[number % 4]
            correlation_id, response = decode_response(ProduceResponse, receive_frame(sock), version)
            assert correlation_id == number
            assert response.responses[0].partition_responses[0].base_offset == number


class Producer:
    """An idempotent producer by hand."""

    def __init__(self, connection: Connection) -> None:
        response = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000))
        assert response.error_code == 0
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def batch(self, sequence: int, *values: bytes, epoch: int | None = None) -> bytes:
        return batch_of(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )


def test_producers_get_different_ids(connection: Connection) -> None:
    assert len({Producer(connection).producer_id for _ in range(50)}) == 50


@pytest.mark.parametrize("version", [4, 9, 13])
def test_a_repeated_batch_gets_its_old_offset(connection: Connection, version: int) -> None:
    topic, producer = new_topic(connection), Producer(connection)
    batches = [producer.batch(2 * number, b"a", b"b") for number in range(6)]
    for number, batch in enumerate(batches):
        assert produce(connection, topic, batch, version=version).base_offset == 2 * number
    for number in range(1, 6):
        assert produce(connection, topic, batches[number], version=version).base_offset == 2 * number
    assert list_offset(connection, topic, -1).offset == 12
    too_old = produce(connection, topic, batches[0], version=version)
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("version", [4, 9, 13])
def test_a_gap_and_an_old_epoch_are_refused(connection: Connection, version: int) -> None:
    topic, producer = new_topic(connection), Producer(connection)
    assert produce(connection, topic, producer.batch(0, b"a"), version=version).error_code == 0
    gap = produce(connection, topic, producer.batch(5, b"b"), version=version)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produce(connection, topic, producer.batch(0, b"c", epoch=1), version=version).error_code == 0
    old = produce(connection, topic, producer.batch(1, b"d", epoch=0), version=version)
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert list_offset(connection, topic, -1).offset == 2


def test_an_empty_transactional_id_is_refused(connection: Connection) -> None:
    response = connection.call(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000))
    assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("acks", [1, -1])
def test_a_topic_may_ask_for_durable_before_acknowledged(connection: Connection, acks: int) -> None:
    topic = new_topic(connection, configs={"flush.messages": "1"})
    for number in range(20):
        assert produce(connection, topic, batch_of(b"x"), acks=acks).base_offset == number
        assert list_offset(connection, topic, -1).offset == number + 1


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize(
    ("wanted", "codec"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_batches_are_stored_in_the_codec_that_their_topic_wants(
    connection: Connection, wanted: str, codec: int, acks: int
) -> None:
    topic = new_topic(connection, partitions=2, configs={"compression.type": wanted})
    other = new_topic(connection)
    producer = Producer(connection)
    for number in range(6):
        batch = batch_of(
            b"x" * 500, producer_id=producer.producer_id, producer_epoch=0, base_sequence=number, codec=number % 5
        )
        request = produce_request(topic, {0: batch, 1: batch_of(b"y")}, acks=acks)
        request.topic_data += produce_request(other, {0: batch_of(b"z")}).topic_data
        if acks == 0:
            connection.send(request, 9)
        else:
            answers = [one for each in connection.call(request, 9).responses for one in each.partition_responses]
            assert [(one.error_code, one.base_offset) for one in answers] == [(0, number)] * 3
    assert list_offset(connection, topic, -1).offset == 6
    records = fetch(connection, topic, 0).records
    assert records is not None
    assert [parse_header(batch).codec for batch in split_batches(records)] == [codec] * 6
    assert values_of(records) == [b"x" * 500] * 6
    assert len(values_of(fetch(connection, other, 0).records)) == 6


def test_a_batch_that_cannot_be_unpacked_is_refused_where_the_topic_wants_another_codec(connection: Connection) -> None:
    topic = new_topic(connection, configs={"compression.type": "lz4"})
    broken = bytearray(batch_of(b"x" * 1_000, codec=1))
    broken[70:80] = b"\0" * 10
    struct.pack_into(">I", broken, 17, crc32c(memoryview(broken)[21:]))
    assert produce(connection, topic, bytes(broken)).error_code == ErrorCode.INVALID_RECORD
    assert produce(connection, topic, batch_of(b"x")).error_code == 0


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"message.timestamp.before.max.ms": "3600000"}])
def test_large_batches_are_opened_beside_the_loop_and_keep_their_order(
    cluster: RunningCluster, connection: Connection, configs: dict[str, str], codec: int
) -> None:
    topic, producer = new_topic(connection, configs=configs), Producer(connection)
    numbers = range(12)
    with connect(cluster) as other:
        sock = other._socket
        assert sock is not None
        for number in numbers:
            batch = batch_of(
                *[bytes(400)] * (2, 100)[number % 2],
                key=b"k",
                codec=codec,
                producer_id=producer.producer_id,
                producer_epoch=0,
                base_sequence=51 * number - (number % 2) * 49,
            )
            sock.sendall(encode_request(produce_request(topic, {0: batch}), 9, number, "t"))
        answers = [decode_response(ProduceResponse, receive_frame(sock), 9) for _ in numbers]
    assert [number for number, _ in answers] == list(numbers)
    assert [one.responses[0].partition_responses[0].error_code for _, one in answers] == [0] * len(numbers)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_time_of_packed_records_too(connection: Connection, codec: int) -> None:
    topic = new_topic(connection, configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(connection, topic, batch_of(b"x", b"y", timestamp_ms=5, codec=codec))
    records = fetch(connection, topic, 0).records
    assert records is not None
    assert check_batch(records).codec == codec
    assert [record.timestamp for record in read_records(records)] == [answer.log_append_time_ms] * 2


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 3, 12), ("zstd", 1, 19)])
def test_the_topic_says_how_hard_to_pack(connection: Connection, codec: str, low: int, high: int) -> None:
    values = [b"%d %x %d " % (number * 7919, number * 104729, number % 97) * 10 for number in range(2_000)]
    sizes = []
    for level in (low, high):
        configs = {"compression.type": codec, f"compression.{codec}.level": str(level)}
        topic = new_topic(connection, configs=configs)
        assert produce(connection, topic, batch_of(*values)).error_code == 0
        records = fetch(connection, topic, 0).records
        assert records is not None and values_of(records) == values
        sizes.append(len(records))
    assert sizes[0] > sizes[1]
