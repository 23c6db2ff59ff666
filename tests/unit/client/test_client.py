from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from appliance.base.clock import SystemClock
from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import ZERO_UUID, TopicPartition
from appliance.client.client import Client
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.results import ConfigResource, NewTopic, OffsetResult, ProduceResult
from appliance.client.retries import RetryPolicy
from appliance.wire.api import ApiKey
from appliance.wire.codec import RequestHeader
from appliance.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from appliance.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from appliance.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from appliance.wire.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from appliance.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from appliance.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from appliance.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from appliance.wire.schema import Struct
from tests.support.wire_server import CLOSE, Answer, WireServer

TOPIC_ID = uuid.UUID(int=77)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = RetryPolicy(retry_limit=3, backoff_ms=1, backoff_max_ms=1)


class Cluster:
    """Two brokers on loopback; `leaders` says who leads each partition of topic t, and may change."""

    def __init__(self) -> None:
        self.leaders = {0: 1, 1: 2}
        self.topic_id = TOPIC_ID
        self.topic_error = ErrorCode.NONE
        self.servers = {broker_id: WireServer() for broker_id in (1, 2)}
        for server in self.servers.values():
            server.handlers[ApiKey.METADATA] = self.metadata

    def metadata(self, header: RequestHeader, body: Struct) -> Answer:
        assert isinstance(body, MetadataRequest) and not body.allow_auto_topic_creation
        partitions = [MetadataResponsePartition(partition_index=p, leader_id=b) for p, b in self.leaders.items()]
        names = ["t"] if body.topics is None else [topic.name for topic in body.topics]
        topics = [
            MetadataResponseTopic(name=name, topic_id=self.topic_id, partitions=partitions)
            if name == "t" and not self.topic_error
            else MetadataResponseTopic(name=name, error_code=self.topic_error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for name in names
        ]
        brokers = [MetadataResponseBroker(node_id=i, host=s.host, port=s.port) for i, s in self.servers.items()]
        return MetadataResponse(cluster_id="c", controller_id=1, brokers=brokers, topics=topics)

    def on(self, key: ApiKey, handler: Callable[[int, RequestHeader, Struct], Answer]) -> None:
        """Both brokers answer an API by a function of their id, header and body."""
        for broker_id, server in self.servers.items():
            server.handlers[key] = lambda header, body, me=broker_id: handler(me, header, body)

    def asked(self, key: ApiKey) -> list[tuple[RequestHeader, Struct]]:
        return [request for server in self.servers.values() for request in server.asked(key)]

    def client(self, **settings: object) -> Client:
        return Client(self.servers[1].address, **{"retries": QUICK, "timeout_ms": 5_000} | settings)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    for server in made.servers.values():
        server.close()


def offsets(me: int, header: RequestHeader, body: Struct) -> ListOffsetsResponse:
    """Offset 100 × broker + partition for each asked partition."""
    assert isinstance(body, ListOffsetsRequest)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=100 * me + p.partition_index)
                    for p in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def refused(body: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def test_metadata_tells_brokers_topics_and_leaders(cluster: Cluster) -> None:
    with cluster.client() as client:
        got = client.metadata(["t", "missing"])
    assert sorted(got.brokers) == [1, 2]
    assert (got.cluster_id, got.controller_id) == ("c", 1)
    assert got.topics["t"].topic_id == got.topic_id("t") == TOPIC_ID
    assert [got.leader_of(tp) for tp in (T0, T1, TopicPartition("t", 9), TopicPartition("x", 0))] == [1, 2, -1, -1]
    assert got.topics["missing"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert got.topic_id("missing") == ZERO_UUID


def test_each_leader_is_asked_about_its_own_partitions(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    with cluster.client() as client:
        assert client.list_offsets({T0: -1, T1: -2}) == {T0: OffsetResult(100, -1, -1), T1: OffsetResult(201, -1, -1)}
    assert [len(server.asked(ApiKey.LIST_OFFSETS)) for server in cluster.servers.values()] == [1, 1]


def test_a_partition_that_has_moved_is_asked_again_at_its_new_leader(cluster: Cluster) -> None:
    def moved(me: int, header: RequestHeader, body: Struct) -> Answer:
        assert isinstance(body, ListOffsetsRequest)
        if me == 1:
            cluster.leaders[0] = 2
            return refused(body, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return offsets(me, header, body)

    cluster.on(ApiKey.LIST_OFFSETS, moved)
    with cluster.client() as client:
        got = client.list_offsets({T0: -1, T1: -1})
    assert (got[T0].offset, got[T1].offset) == (200, 201)
    assert len(cluster.servers[2].asked(ApiKey.LIST_OFFSETS)) == 2, "partition 1 had its answer and was not asked again"


def test_a_leader_that_hangs_up_is_asked_again(cluster: Cluster) -> None:
    calls = []

    def flaky(me: int, header: RequestHeader, body: Struct) -> Answer:
        calls.append(me)
        return CLOSE if len(calls) == 1 else offsets(me, header, body)

    cluster.on(ApiKey.LIST_OFFSETS, flaky)
    with cluster.client() as client:
        assert client.list_offsets({T0: -1})[T0].offset == 100
    assert calls == [1, 1]


def test_attempts_are_bounded_and_the_last_error_is_raised(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, lambda me, header, body: refused(body, ErrorCode.LEADER_NOT_AVAILABLE))
    with cluster.client() as client, pytest.raises(KafkaError, match="t-0") as caught:
        client.list_offsets({T0: -1})
    assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert len(cluster.asked(ApiKey.LIST_OFFSETS)) == 1 + QUICK.retry_limit


def test_what_cannot_be_cured_is_raised_at_once(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, lambda me, header, body: refused(body, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with cluster.client() as client, pytest.raises(KafkaError) as caught:
        client.list_offsets({T0: -1})
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert len(cluster.asked(ApiKey.LIST_OFFSETS)) == 1


def test_a_code_of_a_newer_kafka_is_an_unknown_server_error(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, lambda me, header, body: refused(body, 9_999))  # type: ignore[arg-type]
    with cluster.client() as client, pytest.raises(KafkaError) as caught:
        client.list_offsets({T0: -1})
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_partition_left_out_of_the_answer_is_an_error(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, lambda me, header, body: ListOffsetsResponse())
    with cluster.client() as client, pytest.raises(KafkaError, match="says nothing about t-0"):
        client.list_offsets({T0: -1})


@pytest.mark.parametrize("tp", [TopicPartition("missing", 0), TopicPartition("t", 5)])
def test_an_unknown_topic_or_partition_is_told_after_bounded_attempts(cluster: Cluster, tp: TopicPartition) -> None:
    with cluster.client() as client, pytest.raises(KafkaError) as caught:
        client.list_offsets({tp: -1})
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(cluster.asked(ApiKey.METADATA)) == 1 + QUICK.retry_limit


def test_a_partition_without_a_leader_is_waited_for(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    cluster.leaders[0] = -1
    waits = []

    def elect(seconds: float) -> None:
        waits.append(seconds)
        cluster.leaders[0] = 2

    with cluster.client(sleep=elect) as client:
        assert client.list_offsets({T0: -1})[T0].offset == 200
    assert len(waits) == 1


def test_an_old_broker_is_not_asked_for_a_timestamp_that_it_does_not_know(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    cluster.servers[1].offered[ApiKey.LIST_OFFSETS] = (1, 7)
    with cluster.client() as client:
        assert client.list_offsets({T0: -3})
        with pytest.raises(KafkaError, match="knows no timestamp -4"):
            client.list_offsets({T0: -4})


def test_epoch_ends_are_told(cluster: Cluster) -> None:
    def ends(me: int, header: RequestHeader, body: Struct) -> Answer:
        assert isinstance(body, OffsetForLeaderEpochRequest) and body.replica_id == -1
        wanted = body.topics[0].partitions[0]
        end = EpochEndOffset(partition=wanted.partition, leader_epoch=wanted.leader_epoch - 1, end_offset=40)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])])

    cluster.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, ends)
    with cluster.client() as client:
        assert client.offsets_for_leader_epoch({T0: 4}) == {T0: (3, 40)}


def fetched(header: RequestHeader, **values: object) -> FetchResponse:
    named = {"topic_id": TOPIC_ID} if header.api_version >= 13 else {"topic": "t"}
    return FetchResponse(responses=[FetchableTopicResponse(**named, partitions=[PartitionData(**values)])])


@pytest.mark.parametrize("newest", [4, 12, 13, 18])
def test_fetch_brings_raw_batches_and_offsets(cluster: Cluster, newest: int) -> None:
    def answer(me: int, header: RequestHeader, body: Struct) -> Answer:
        topic = body.topics[0]
        assert (topic.topic, topic.topic_id) == (("t", ZERO_UUID) if newest < 13 else ("", TOPIC_ID))
        assert (body.max_wait_ms, body.min_bytes, body.isolation_level) == (20, 3, 1)
        assert topic.partitions[0].fetch_offset == 42
        aborted = [AbortedTransaction(producer_id=5, first_offset=41)]
        return fetched(
            header, high_watermark=50, last_stable_offset=48, aborted_transactions=aborted, records=b"raw batches"
        )

    cluster.on(ApiKey.FETCH, answer)
    cluster.servers[1].offered[ApiKey.FETCH] = (4, newest)
    with cluster.client() as client:
        got = client.fetch(T0, 42, max_wait_ms=20, min_bytes=3, isolation_level=1)
    assert (got.error, got.high_watermark, got.last_stable_offset) == (ErrorCode.NONE, 50, 48)
    assert (got.aborted, got.records) == ([(5, 41)], b"raw batches")
    assert type(got.records) is bytes


def test_without_a_topic_id_a_version_with_names_is_used(cluster: Cluster) -> None:
    cluster.topic_id = ZERO_UUID
    cluster.on(ApiKey.FETCH, lambda me, header, body: fetched(header))
    with cluster.client() as client:
        client.fetch(T0, 0)
    assert [header.api_version for header, _ in cluster.asked(ApiKey.FETCH)] == [12]


def test_a_recreated_topic_is_fetched_by_its_new_id(cluster: Cluster) -> None:
    def answer(me: int, header: RequestHeader, body: Struct) -> Answer:
        if body.topics[0].topic_id == TOPIC_ID:
            cluster.topic_id = uuid.UUID(int=78)
            return fetched(header, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        return fetched(header, records=b"new")

    cluster.on(ApiKey.FETCH, answer)
    with cluster.client() as client:
        assert client.fetch(T0, 0).records == b"new"


def test_an_offset_out_of_range_is_an_answer(cluster: Cluster) -> None:
    cluster.on(
        ApiKey.FETCH,
        lambda me, header, body: fetched(
            header, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=9, log_start_offset=5
        ),
    )
    with cluster.client() as client:
        got = client.fetch(T0, 99)
    assert (got.error, got.log_start_offset, got.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5, 9)
    assert got.records == b""


def test_an_error_for_the_whole_fetch_is_raised(cluster: Cluster) -> None:
    cluster.on(ApiKey.FETCH, lambda me, header, body: FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    with cluster.client() as client, pytest.raises(KafkaError) as caught:
        client.fetch(T0, 0)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def produced(header: RequestHeader, **values: object) -> ProduceResponse:
    named = {"topic_id": TOPIC_ID} if header.api_version >= 13 else {"name": "t"}
    return ProduceResponse(
        responses=[TopicProduceResponse(**named, partition_responses=[PartitionProduceResponse(**values)])]
    )


@pytest.mark.parametrize("newest", [3, 9, 13])
def test_produce_sends_the_batch_as_it_is(cluster: Cluster, newest: int) -> None:
    def answer(me: int, header: RequestHeader, body: Struct) -> Answer:
        assert isinstance(body, ProduceRequest)
        assert (body.acks, body.timeout_ms) == (1, 700)
        assert bytes(body.topic_data[0].partition_data[0].records or b"") == b"a batch"
        return produced(header, base_offset=12, log_append_time_ms=99)

    cluster.on(ApiKey.PRODUCE, answer)
    cluster.servers[1].offered[ApiKey.PRODUCE] = (0, newest)
    with cluster.client() as client:
        assert client.produce(T0, bytearray(b"a batch"), acks=1, timeout_ms=700) == ProduceResult(12, 99)


def test_a_refused_batch_comes_with_the_brokers_reason(cluster: Cluster) -> None:
    cluster.on(
        ApiKey.PRODUCE,
        lambda me, header, body: produced(header, error_code=ErrorCode.INVALID_RECORD, error_message="no key"),
    )
    with cluster.client() as client, pytest.raises(KafkaError, match="no key") as caught:
        client.produce(T0, b"a batch")
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_acks_0_waits_for_nothing(cluster: Cluster) -> None:
    cluster.on(ApiKey.PRODUCE, lambda me, header, body: None)
    with cluster.client() as client:
        assert client.produce(T0, b"a batch", acks=0) == ProduceResult(-1, -1)
        client.metadata()


def test_topics_are_created_and_only_those_that_may_succeed_are_tried_again(cluster: Cluster) -> None:
    asked = []

    def create(me: int, header: RequestHeader, body: Struct) -> Answer:
        asked.append([topic.name for topic in body.topics])
        busy = ErrorCode.THROTTLING_QUOTA_EXCEEDED if len(asked) == 1 else ErrorCode.NONE
        results = [
            CreatableTopicResult(
                name=topic.name,
                topic_id=TOPIC_ID,
                num_partitions=3,
                replication_factor=1,
                error_code=busy if topic.name == "b" else ErrorCode.NONE,
            )
            for topic in body.topics
        ]
        return CreateTopicsResponse(topics=results)

    cluster.on(ApiKey.CREATE_TOPICS, create)
    with cluster.client() as client:
        created = client.create_topics([NewTopic("a", 3, configs={"retention.ms": "-1"}), NewTopic("b")])
    assert asked == [["a", "b"], ["b"]]
    assert created["a"] == ("a", TOPIC_ID, 3, 1)
    first = cluster.asked(ApiKey.CREATE_TOPICS)[0][1].topics[0]
    assert (first.num_partitions, first.replication_factor) == (3, -1)
    assert [(config.name, config.value) for config in first.configs] == [("retention.ms", "-1")]


def test_a_refused_topic_is_named_with_the_brokers_reason(cluster: Cluster) -> None:
    result = CreatableTopicResult(
        name="a", error_code=ErrorCode.INVALID_REPLICATION_FACTOR, error_message="only 1 works"
    )
    cluster.on(ApiKey.CREATE_TOPICS, lambda me, header, body: CreateTopicsResponse(topics=[result]))
    with cluster.client() as client, pytest.raises(KafkaError, match="topic a: only 1 works"):
        client.create_topics([NewTopic("a", replication_factor=3)])


def test_topics_with_replicas_given_by_hand_have_no_counts(cluster: Cluster) -> None:
    cluster.on(
        ApiKey.CREATE_TOPICS, lambda me, header, body: CreateTopicsResponse(topics=[CreatableTopicResult(name="a")])
    )
    with cluster.client() as client:
        client.create_topics([NewTopic("a", 2, 1, assignments=[[1], [2, 1]])])
    sent = cluster.asked(ApiKey.CREATE_TOPICS)[0][1].topics[0]
    assert (sent.num_partitions, sent.replication_factor) == (-1, -1)
    assert [(a.partition_index, a.broker_ids) for a in sent.assignments] == [(0, [1]), (1, [2, 1])]


@pytest.mark.parametrize("newest", [5, 6])
def test_topics_are_deleted_by_name(cluster: Cluster, newest: int) -> None:
    def delete(me: int, header: RequestHeader, body: Struct) -> Answer:
        names = body.topic_names if newest == 5 else [state.name for state in body.topics]
        assert names == ["a", "b"]
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])

    cluster.on(ApiKey.DELETE_TOPICS, delete)
    cluster.servers[1].offered[ApiKey.DELETE_TOPICS] = (1, newest)
    with cluster.client() as client:
        client.delete_topics(["a", "b"])


def test_configs_of_a_broker_are_asked_of_itself(cluster: Cluster) -> None:
    def describe(me: int, header: RequestHeader, body: Struct) -> Answer:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[DescribeConfigsResourceResult(name="answered.by", value=str(me), config_source=5)],
                )
                for resource in body.resources
            ]
        )

    cluster.on(ApiKey.DESCRIBE_CONFIGS, describe)
    topic, broker = ConfigResource(2, "t"), ConfigResource(4, "2")
    with cluster.client() as client:
        got = client.describe_configs([topic, broker], ["answered.by"])
    assert got[broker]["answered.by"].value == "2"
    assert got[topic]["answered.by"].value in ("1", "2")
    assert got[topic]["answered.by"].source == 5


def test_any_request_can_be_sent_to_a_broker(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    with cluster.client() as client:
        assert client.call(MetadataRequest(topics=None, allow_auto_topic_creation=False)).cluster_id == "c"
        request = ListOffsetsRequest(topics=[])
        assert client.call(request, broker_id=2) == ListOffsetsResponse()
        with pytest.raises(ConnectionLost, match="no broker with id 9"):
            client.call(request, broker_id=9)
        with pytest.raises(KafkaError, match="does not offer it"):
            client.call(HeartbeatRequest())


def test_one_bootstrap_server_that_answers_is_enough(cluster: Cluster) -> None:
    gone = WireServer()
    gone.close()
    with Client(f"{gone.address}, {cluster.servers[2].address}", retries=QUICK) as client:
        assert sorted(client.metadata().brokers) == [1, 2]


def test_with_all_brokers_gone_the_error_names_the_last_place(cluster: Cluster) -> None:
    with cluster.client() as client:
        client.metadata()
        for server in cluster.servers.values():
            server.close()
        with pytest.raises((ConnectionLost, CallTimedOut), match="no connection to"):
            client.metadata()


def test_a_client_goes_on_with_the_brokers_that_are_left(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    with cluster.client() as client:
        client.metadata()
        cluster.servers[1].close()
        cluster.leaders = {0: 2, 1: 2}
        assert client.list_offsets({T0: -1})[T0].offset == 200


def test_the_operations_time_is_bounded(cluster: Cluster) -> None:
    cluster.on(ApiKey.LIST_OFFSETS, lambda me, header, body: None)
    begin = SystemClock().monotonic_ms()
    with (
        cluster.client(timeout_ms=100, operation_timeout_ms=150) as client,
        pytest.raises((CallTimedOut, ConnectionLost)),
    ):
        client.list_offsets({T0: -1})
    assert SystemClock().monotonic_ms() - begin < 3_000


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9092", "host:x", "host:0", "host:70000"])
def test_bootstrap_servers_that_cannot_be_read_are_told(text: str) -> None:
    with pytest.raises(UserError, match="host:port,host:port"):
        Client(text)
