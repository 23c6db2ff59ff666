"""Who is over a limit is told to wait, and its connection is left alone meanwhile; others go on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.api import ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from appliance.wire.messages.create_topics import CreatableTopic, CreatableTopicResult, CreateTopicsRequest
from appliance.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from appliance.wire.messages.fetch import FetchResponse
from appliance.wire.messages.metadata import MetadataRequest
from appliance.wire.messages.produce import ProduceResponse
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, fetch_request, new_topic, produce, produce_request
from tests.support.server import receive_frame

LONG_MS = 60_000
FAST_VERSION, SLOW_VERSION = 9, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def control(cluster: RunningCluster) -> Iterator[Connection]:
    """Of a client that nobody limits."""
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="control", timeout_ms=20_000) as connection:
        yield connection


def limit(control: Connection, client_id: str, **limits: float | None) -> None:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()]
    whom = [EntityData(entity_type="client-id", entity_name=client_id)]
    (row,) = control.call(AlterClientQuotasRequest(entries=[EntryData(entity=whom, ops=ops)])).entries
    assert row.error_code == ErrorCode.NONE


class RawClient:
    """A client whose requests are sent without waiting for answers."""

    def __init__(self, cluster: RunningCluster, client_id: str) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10)

    def send(self, request: object, version: int) -> None:
        self.socket.sendall(encode_request(request, version, 1, self.client_id))  # type: ignore[arg-type]

    def receive(self, response: type, version: int) -> object:
        return decode_response(response, receive_frame(self.socket), version)[1]

    def has_answer(self) -> bool:
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(10)

    def close(self) -> None:
        self.socket.close()


def is_muted(client: RawClient, control: Connection) -> bool:
    """Whether a request of the client is not answered while others are."""
    client.send(MetadataRequest(topics=[]), 9)
    for _ in range(20):
        control.call(MetadataRequest(topics=[]))
    return not client.has_answer()


@pytest.mark.parametrize("version", [FAST_VERSION, SLOW_VERSION])
def test_a_producer_over_its_limit_is_answered_and_then_left_alone(
    cluster: RunningCluster, control: Connection, version: int
) -> None:
    topic, name = new_topic(control), f"producer-{version}"
    limit(control, name, producer_byte_rate=1_000.0)
    client, free = RawClient(cluster, name), RawClient(cluster, "free")
    request = produce_request(topic, {0: batch_of(b"x" * 5_000)})
    client.send(request, version)
    first = client.receive(ProduceResponse, version)
    client.send(produce_request(topic, {0: batch_of(b"x" * 80_000)}), version)
    second = client.receive(ProduceResponse, version)
    assert isinstance(first, ProduceResponse)
    assert isinstance(second, ProduceResponse)
    assert (first.throttle_time_ms, second.responses[0].partition_responses[0].error_code) == (0, 0)
    assert second.throttle_time_ms > LONG_MS
    assert is_muted(client, control)
    assert not is_muted(free, control)
    assert produce(control, topic, batch_of(b"others go on")).error_code == 0
    client.close(), free.close()


@pytest.mark.parametrize("version", [12, 13, 4])
def test_a_reader_over_its_limit_gets_its_records_and_is_then_left_alone(
    cluster: RunningCluster, control: Connection, version: int
) -> None:
    topic, name = new_topic(control), f"reader-{version}"
    for _ in range(2):
        assert produce(control, topic, batch_of(b"x" * 80_000)).error_code == 0
    limit(control, name, consumer_byte_rate=1_000.0)
    client = RawClient(cluster, name)
    client.send(fetch_request(topic, {0: 0}), version)
    answer = client.receive(FetchResponse, version)
    assert isinstance(answer, FetchResponse)
    assert len(answer.responses[0].partitions[0].records or b"") > 160_000
    assert answer.throttle_time_ms > LONG_MS
    assert is_muted(client, control)
    client.close()


def test_a_fetch_that_waits_is_counted_when_it_is_answered(cluster: RunningCluster, control: Connection) -> None:
    topic = new_topic(control)
    limit(control, "patient", consumer_byte_rate=1_000.0)
    client = RawClient(cluster, "patient")
    client.send(fetch_request(topic, {0: 0}, max_wait_ms=20_000), 12)
    for _ in range(5):
        control.call(MetadataRequest(topics=[]))
    assert produce(control, topic, batch_of(b"x" * 90_000)).error_code == 0
    answer = client.receive(FetchResponse, 12)
    assert isinstance(answer, FetchResponse)
    assert answer.throttle_time_ms > LONG_MS
    assert is_muted(client, control)
    client.close()


def test_who_uses_too_much_time_waits_with_the_next_answer(cluster: RunningCluster, control: Connection) -> None:
    limit(control, "busy", request_percentage=0.000_001)
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="busy", timeout_ms=20_000) as busy:
        busy.call(MetadataRequest(topics=[]), 9)
        client = RawClient(cluster, "busy")
        client.send(DeleteTopicsRequest(topics=[]), 6)
        receive_frame(client.socket)
        assert is_muted(client, control)
        client.close()


def test_a_limit_that_is_removed_holds_nobody_back(cluster: RunningCluster, control: Connection) -> None:
    topic = new_topic(control)
    limit(control, "freed", producer_byte_rate=1_000.0)
    limit(control, "freed", producer_byte_rate=None)
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="freed", timeout_ms=20_000) as freed:
        for _ in range(3):
            answer = freed.call(produce_request(topic, {0: batch_of(b"x" * 90_000)}), FAST_VERSION)
            assert answer.throttle_time_ms == 0


def create(connection: Connection, name: str, partitions: int, version: int) -> tuple[CreatableTopicResult, int]:
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), version)
    return answer.topics[0], answer.throttle_time_ms


def test_changes_of_topics_are_refused_once_a_burst_is_used_up(cluster: RunningCluster, control: Connection) -> None:
    limit(control, "admin", controller_mutation_rate=0.01)
    port = cluster.brokers[1].port
    with Connection("127.0.0.1", port, client_id="admin", timeout_ms=20_000) as first:
        made, wait_ms = create(first, "mutated-1", 5, 7)
        assert made.error_code == 0
        assert wait_ms > LONG_MS
    with Connection("127.0.0.1", port, client_id="admin", timeout_ms=20_000) as second:
        refused, wait_ms = create(second, "mutated-2", 1, 7)
        assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert wait_ms > LONG_MS
    with Connection("127.0.0.1", port, client_id="admin", timeout_ms=20_000) as third:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="mutated-1")], timeout_ms=10_000)
        assert third.call(request, 6).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with Connection("127.0.0.1", port, client_id="admin", timeout_ms=20_000) as old:
        made, _ = create(old, "mutated-3", 1, 5)
        assert made.error_code == 0, "older clients do not know the error"


def test_without_limits_requests_do_not_pass_by_the_quotas(cluster: RunningCluster, control: Connection) -> None:
    for name in ("producer-9", "producer-3", "reader-12", "reader-13", "reader-4", "patient", "busy", "admin"):
        limit(
            control,
            name,
            producer_byte_rate=None,
            consumer_byte_rate=None,
            request_percentage=None,
            controller_mutation_rate=None,
        )
    topic = new_topic(control)
    for _ in range(3):
        assert produce(control, topic, batch_of(b"short way"), version=FAST_VERSION).error_code == 0
    assert int(ApiKey.PRODUCE) == 0
