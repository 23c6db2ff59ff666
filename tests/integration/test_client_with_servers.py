"""The client against real servers: Apache Kafka, whose word counts, and an appliance, which must say the same."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.ids import ZERO_UUID, TopicPartition
from appliance.client.client import Client
from appliance.client.connection import Connection
from appliance.client.results import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigResource, NewTopic
from appliance.client.retries import RetryPolicy
from appliance.records.batch import split_batches
from appliance.records.builder import build_batch
from appliance.records.reader import read_records
from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.kafka_peer import KafkaPeer
from tests.support.running import REAL, RunningAppliance

SERVERS = [pytest.param("kafka", marks=pytest.mark.java), "appliance"]


@pytest.fixture(scope="module", params=SERVERS)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap servers of a Kafka node, and of an appliance of one broker."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka_peer").bootstrap_servers
        return
    folder = tmp_path_factory.mktemp("appliance")
    with RunningAppliance(folder, "--brokers", "1", "--runtime", "local", module=REAL) as running:
        yield running.ready()["bootstrap_servers"]


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    with Client(address, retries=RetryPolicy(retry_limit=20)) as made:
        yield made


def connect(address: str) -> Connection:
    host, _, port = address.partition(":")
    return Connection(host, int(port))


@pytest.fixture
def partition(client: Client) -> TopicPartition:
    name = f"client-{uuid.uuid4().hex[:8]}"
    created = client.create_topics([NewTopic(name, 2, 1, {"retention.ms": "-1"})])
    assert (created[name].num_partitions, created[name].replication_factor) == (2, 1)
    assert created[name].topic_id != ZERO_UUID
    return TopicPartition(name, 1)


def batch_of(*values: bytes, timestamp: int = 1_000) -> bytes:
    return build_batch([(timestamp + i, b"k", value, []) for i, value in enumerate(values)])


def values_in(records: bytes) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for batch in split_batches(memoryview(records)) for r in read_records(batch)]


def test_what_is_produced_is_fetched_and_listed(client: Client, partition: TopicPartition) -> None:
    assert client.produce(partition, batch_of(b"a", b"b")).base_offset == 0
    assert client.produce(partition, batch_of(b"c", timestamp=5_000), acks=1).base_offset == 2
    got = client.fetch(partition, 1)
    assert values_in(got.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (got.error, got.high_watermark, got.last_stable_offset, got.log_start_offset) == (ErrorCode.NONE, 3, 3, 0)
    for timestamp, offset in [(-2, 0), (-1, 3), (-3, 2), (-4, 0), (1_001, 1), (2_000, 2), (9_000, -1)]:
        assert client.list_offsets({partition: timestamp})[partition].offset == offset, timestamp
    assert client.offsets_for_leader_epoch({partition: 0})[partition] == (0, 3)


def test_an_offset_beyond_the_log_is_out_of_range(client: Client, partition: TopicPartition) -> None:
    assert client.fetch(partition, 7).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_corrupt_batch_is_refused(address: str, client: Client, partition: TopicPartition) -> None:
    damaged = bytearray(batch_of(b"value"))
    damaged[-1] ^= 1
    impatient = RetryPolicy(retry_limit=1, backoff_ms=1)
    with Client(address, retries=impatient) as hasty, pytest.raises(KafkaError) as caught:
        hasty.produce(partition, damaged)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_configs_are_described(client: Client, partition: TopicPartition) -> None:
    topic, broker = ConfigResource(TOPIC_RESOURCE, partition.topic), ConfigResource(BROKER_RESOURCE, "1")
    got = client.describe_configs([topic, broker])
    assert (got[topic]["retention.ms"].value, got[topic]["retention.ms"].source) == ("-1", 1)
    assert got[topic]["segment.bytes"].documentation
    assert got[broker]["node.id"].value == "1"
    assert list(client.describe_configs([topic], ["cleanup.policy"])[topic]) == ["cleanup.policy"]


def test_what_cannot_be_created_is_told_with_kafkas_code_and_reason(client: Client, partition: TopicPartition) -> None:
    with pytest.raises(KafkaError, match=partition.topic) as caught:
        client.create_topics([NewTopic(partition.topic)])
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"):
        client.create_topics([NewTopic("too-many", 1, 9)])
    client.create_topics([NewTopic("never-made")], validate_only=True)
    assert "never-made" not in client.metadata().topics


def test_a_recreated_topic_is_found_under_its_new_id(client: Client, partition: TopicPartition) -> None:
    client.produce(partition, batch_of(b"old"))
    before = client.metadata([partition.topic]).topic_id(partition.topic)
    client.delete_topics([partition.topic])
    client.create_topics([NewTopic(partition.topic, 2, 1)])
    client.produce(partition, batch_of(b"new"))
    assert values_in(client.fetch(partition, 0).records) == [(0, b"new")]
    assert client.metadata([partition.topic]).topic_id(partition.topic) != before


def test_every_offered_version_of_the_apis_on_a_records_way_is_understood(
    address: str, client: Client, partition: TopicPartition
) -> None:
    """Each version that both know: the server reads our request, we read its answer."""
    topic_id = client.metadata([partition.topic]).topic_id(partition.topic)
    data = [PartitionProduceData(index=1, records=batch_of(b"x"))]
    fetched = [FetchPartition(partition=1, partition_max_bytes=1 << 20)]
    count = 0
    with connect(address) as connection:
        offered = connection.versions()
        for version in range(APIS[ApiKey.API_VERSIONS].max_version + 1):
            answer = connection.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), version)
            assert {api.api_key for api in answer.api_keys} == set(offered)
        for version in versions(offered, ApiKey.METADATA):
            name = MetadataRequestTopic(name=partition.topic)
            assert connection.call(MetadataRequest(topics=[name]), version).topics[0].partitions[0].leader_id == 1
        for version in range(3, offered[ApiKey.PRODUCE][1] + 1):
            topic = TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=data)
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
            got = connection.call(request, version).responses[0].partition_responses[0]
            assert (got.error_code, got.base_offset) == (ErrorCode.NONE, count), version
            count += 1
        for version in range(4, offered[ApiKey.FETCH][1] + 1):
            asked = FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=fetched)
            answered = connection.call(FetchRequest(max_wait_ms=100, topics=[asked]), version)
            read = answered.responses[0].partitions[0]
            assert len(values_in(bytes(read.records or b""))) == count, version


def versions(offered: dict[int, tuple[int, int]], key: ApiKey) -> range:
    lowest, highest = offered[key]
    return range(max(lowest, APIS[key].min_version), min(highest, APIS[key].max_version) + 1)


@pytest.mark.java
def test_kafka_offers_nothing_of_these_apis_that_is_newer_than_ours(kafka_peer: KafkaPeer) -> None:
    with connect(kafka_peer.bootstrap_servers) as connection:
        for key, (_, highest) in connection.versions().items():
            if key in APIS:
                assert highest == APIS[key].max_stable_version, APIS[key].name
                assert encode_request(APIS[key].request(), highest, 1, "x")
