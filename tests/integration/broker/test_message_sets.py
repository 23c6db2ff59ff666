"""Clients older than record batches: Produce 0 to 2 and Fetch 0 to 3, whose records are message sets."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import split_batches
from appliance.records.compression import compress
from appliance.records.message_sets import encode_message, read_set
from appliance.records.reader import read_records
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.fetch import PartitionData
from appliance.wire.messages.produce import PartitionProduceResponse
from appliance.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.broker import RunningCluster, running_cluster
from tests.support.ports import free_port
from tests.support.requests import batch_of, fetch_request, new_topic, partitions_of, produce, produce_request

CODECS = (0, 1, 2, 3)
METRICS_PORT = free_port()
TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties={"metrics.port": str(METRICS_PORT)}) as running:
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="old", timeout_ms=30_000) as connection:
        yield connection


def message_set(magic: int, codec: int, *values: bytes | None) -> bytes:
    plain = [encode_message(number, magic, 0, TIME + number, b"k", value) for number, value in enumerate(values)]
    if not codec:
        return b"".join(plain)
    packed = compress(codec, b"".join(plain))
    if codec == 3 and not magic:
        from appliance.records.message_sets import with_lz4_checksum

        packed = with_lz4_checksum(packed, broken=True)
    return encode_message(len(values) - 1, magic, codec, TIME, None, packed)


def fetched(
    connection: Connection, topic: CreatableTopicResult, offset: int, version: int, **options: int
) -> PartitionData:
    return partitions_of(connection.call(fetch_request(topic, {0: offset}, **options), version))[0]


def conversions(topic: CreatableTopicResult) -> dict[str, float]:
    """Records that were converted, by what the exporter calls it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    found = {}
    for line in lines:
        name, _, value = line.rpartition(" ")
        if "messageconversions" in name and f'topic="{topic.name}"' in name:
            found[name.partition("{")[0].removeprefix("kafka_server_brokertopicmetrics_")] = float(value)
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_old_producers_send_is_read_by_all(connection: Connection, version: int, codec: int) -> None:
    topic, magic = new_topic(connection), int(version == 2)
    for round_ in range(2):
        answer = produce(connection, topic, message_set(magic, codec, b"a", None, b"c"), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3 * round_)
    new = fetched(connection, topic, 0, 11)
    assert new.records is not None
    (first, second) = split_batches(new.records)
    records = [*read_records(first), *read_records(second)]
    assert [(record.offset, record.key, record.value) for record in records] == [
        (3 * round_ + at, b"k", value) for round_ in range(2) for at, value in enumerate((b"a", None, b"c"))
    ]
    assert [record.timestamp for record in records] == ([TIME, TIME + 1, TIME + 2] * 2 if magic else [-1] * 6)
    for old in range(4):
        data = fetched(connection, topic, 1, old)
        assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 6)
        found = read_set(bytes(data.records or b""))
        assert {each.magic for each in found} == {int(old >= 2)}
        assert [each.offset for each in found] == ([2, 5] if codec else [1, 2, 3, 4, 5])
    counts = conversions(topic)
    assert counts["producemessageconversions_total"] == 6
    assert counts["fetchmessageconversions_total"] == 4 * (6 if codec else 5)


def test_an_old_reader_gets_what_new_producers_sent(connection: Connection) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"x" * 100_000, b"y")).error_code == 0
    for version in range(4):
        whole = fetched(connection, topic, 0, version, max_bytes=1_000)
        assert [each.value for each in read_set(bytes(whole.records or b""))] == [b"x" * 100_000, b"y"]
    zstd = new_topic(connection)
    assert produce(connection, zstd, batch_of(b"z", codec=4)).error_code == 0
    assert fetched(connection, zstd, 0, 3).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert fetched(connection, zstd, 5, 3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_each_partition_has_its_own_error(connection: Connection) -> None:
    topic = new_topic(connection, partitions=6, configs={"max.message.bytes": "2000"})
    good = message_set(1, 0, b"v")
    request = produce_request(
        topic,
        {
            0: good,
            1: good[:-1] + b"x",
            2: b"",
            3: good + good[:-3],
            4: message_set(1, 0, bytes(3_000)),
            5: message_set(1, 1, b"v") + good,
            9: good,
        },
    )
    rows = connection.call(request, 2).responses[0].partition_responses
    assert {row.index: ErrorCode(row.error_code).name for row in rows} == {
        0: "NONE",
        1: "CORRUPT_MESSAGE",
        2: "NONE",
        3: "NONE",
        4: "MESSAGE_TOO_LARGE",
        5: "INVALID_RECORD",
        9: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert [row.base_offset for row in rows] == [0, -1, -1, 0, -1, -1, -1]
    assert [data.high_watermark for data in (fetched(connection, topic, 0, 2),)] == [1]


def test_topics_configs_hold_for_old_producers_too(connection: Connection) -> None:
    stamped = new_topic(connection, configs={"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"})
    answer = produce(connection, stamped, message_set(0, 2, b"v"), version=2)
    assert answer.error_code == 0 and answer.log_append_time_ms > TIME
    (wrapper,) = read_set(bytes(fetched(connection, stamped, 0, 3).records or b""))
    assert (wrapper.codec, wrapper.attributes & 8, wrapper.timestamp) == (1, 8, answer.log_append_time_ms)
    compacted = new_topic(connection, configs={"cleanup.policy": "compact"})
    without_key = encode_message(0, 1, 0, TIME, None, b"v")
    assert produce(connection, compacted, without_key, version=2).error_code == ErrorCode.INVALID_RECORD


def test_acks_are_as_ever(connection: Connection) -> None:
    topic = new_topic(connection)
    assert produce(connection, topic, message_set(1, 0, b"a"), version=2, acks=-1).base_offset == 0
    connection.send(produce_request(topic, {0: message_set(1, 0, b"b")}, acks=0), 2)
    answer: PartitionProduceResponse = produce(connection, topic, message_set(1, 0, b"c"), version=2)
    assert answer.base_offset == 2


def test_a_reader_passes_over_what_it_cannot_know(connection: Connection) -> None:
    """It asks for a marker's offset, and gets the records behind it."""
    topic = new_topic(connection)
    assert produce(connection, topic, batch_of(b"a")).base_offset == 0
    where = [WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])]
    marker = WritableTxnMarker(producer_id=77, producer_epoch=0, transaction_result=True, topics=where)
    connection.call(WriteTxnMarkersRequest(markers=[marker]))
    alone = fetched(connection, topic, 1, 3, max_wait_ms=1)
    assert (alone.error_code, alone.high_watermark, bytes(alone.records or b"")) == (0, 2, b"")
    assert produce(connection, topic, batch_of(b"b")).base_offset == 2
    # The limit is that of the marker: nothing of it is left, so more is read.
    behind = fetched(connection, topic, 1, 3, max_bytes=10)
    assert [(each.offset, each.value) for each in read_set(bytes(behind.records or b""))] == [(2, b"b")]


def test_clients_of_today_choose_batches(cluster: RunningCluster, connection: Connection) -> None:
    """Though the old versions are offered."""
    versions = connection.versions()
    assert (versions[0][0], versions[1][0]) == (0, 0)
    topic = new_topic(connection)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "gzip"})
    producer.produce(topic.name, b"v" * 1_000)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic.name, 0, 0)])
    message = consumer.poll(60)
    assert message is not None and message.value() == b"v" * 1_000
    consumer.close()
    other = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    other.send(topic.name, b"w").get(30)
    other.close()
    reader = KafkaConsumer(
        topic.name,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    assert [record.value for _, record in zip(range(2), reader, strict=False)] == [b"v" * 1_000, b"w"]
    reader.close()
    assert conversions(topic) == {}
