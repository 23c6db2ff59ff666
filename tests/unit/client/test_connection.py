from __future__ import annotations

import socket
import struct
import threading
import time

import pytest

from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.api import ApiKey
from appliance.wire.codec import RequestHeader, WireError, encode_response
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.metadata import MetadataRequest, MetadataResponse
from appliance.wire.messages.produce import ProduceRequest
from appliance.wire.schema import Struct
from tests.support.wire_server import CLOSE, Answer, Handler, WireServer


def heartbeats(answer: Answer) -> dict[int, Handler]:
    return {ApiKey.HEARTBEAT: lambda header, body: answer}


def test_a_call_gets_its_response_in_the_highest_version_that_both_know() -> None:
    with WireServer(heartbeats(HeartbeatResponse(error_code=27)), {ApiKey.HEARTBEAT: (0, 2)}) as server:
        with Connection(server.host, server.port, client_id="tester") as connection:
            assert connection.call(HeartbeatRequest(group_id="g")).error_code == 27
        header, body = server.asked(ApiKey.HEARTBEAT)[0]
        assert (header.api_version, header.client_id, body.group_id) == (2, "tester", "g")


def test_versions_are_asked_once() -> None:
    with WireServer(heartbeats(HeartbeatResponse())) as server, Connection(server.host, server.port) as connection:
        for _ in range(3):
            connection.call(HeartbeatRequest())
        assert len(server.asked(ApiKey.API_VERSIONS)) == 1
        assert connection.versions()[ApiKey.HEARTBEAT] == (0, 4)
        assert connection.common_version(HeartbeatRequest) == 4


def test_a_given_version_needs_no_question() -> None:
    with WireServer(heartbeats(HeartbeatResponse())) as server, Connection(server.host, server.port) as connection:
        connection.call(HeartbeatRequest(), version=1)
        assert [header.api_version for header, _ in server.requests] == [1]


def test_a_peer_that_knows_only_older_api_versions_is_understood() -> None:
    def old_broker(header: RequestHeader, body: Struct) -> Answer:
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
        if header.api_version > 2:
            refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
            return encode_response(refused, 0, header.correlation_id)
        return ApiVersionsResponse(api_keys=[own, ApiVersion(api_key=ApiKey.HEARTBEAT, max_version=1)])

    handlers = heartbeats(HeartbeatResponse()) | {ApiKey.API_VERSIONS: old_broker}
    with WireServer(handlers) as server, Connection(server.host, server.port) as connection:
        connection.call(HeartbeatRequest())
        assert [header.api_version for header, _ in server.requests] == [4, 2, 1]


def test_no_version_in_common_is_told_with_both_ranges() -> None:
    with WireServer(heartbeats(None), {ApiKey.HEARTBEAT: (7, 9)}) as server:
        with Connection(server.host, server.port) as connection, pytest.raises(KafkaError) as caught:
            connection.call(HeartbeatRequest())
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
        assert "7 to 9" in str(caught.value) and "0 to 4" in str(caught.value)


def test_an_api_that_is_not_offered_is_told() -> None:
    with WireServer() as server, Connection(server.host, server.port) as connection:
        with pytest.raises(KafkaError, match="does not offer it"):
            connection.call(HeartbeatRequest())
        assert connection.is_open


def test_nobody_listening_is_connection_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}"):
        Connection("127.0.0.1", port)


def test_a_connection_that_ends_before_the_answer_is_lost_and_closed() -> None:
    with WireServer(heartbeats(CLOSE)) as server, Connection(server.host, server.port) as connection:
        with pytest.raises(ConnectionLost, match="ended the connection"):
            connection.call(HeartbeatRequest())
        assert not connection.is_open
        with pytest.raises(ConnectionLost, match="closed"):
            connection.call(HeartbeatRequest())


def test_a_call_without_an_answer_times_out_and_closes_the_connection() -> None:
    with WireServer(heartbeats(None)) as server, Connection(server.host, server.port) as connection:
        connection.versions()
        begin = time.monotonic()
        with pytest.raises(CallTimedOut, match=server.address):
            connection.call(HeartbeatRequest(), timeout_ms=50)
        assert 0.04 < time.monotonic() - begin < 5
        assert not connection.is_open


def test_an_answer_that_trickles_in_times_out_as_a_whole() -> None:
    def trickle(header: RequestHeader, body: Struct) -> Answer:
        frame = encode_response(HeartbeatResponse(), header.api_version, header.correlation_id)
        return frame[:-1]

    with WireServer({ApiKey.HEARTBEAT: trickle}) as server, Connection(server.host, server.port) as connection:
        connection.versions()
        with pytest.raises(CallTimedOut):
            connection.call(HeartbeatRequest(), timeout_ms=50)


def test_the_answer_to_another_request_is_never_taken() -> None:
    def wrong(header: RequestHeader, body: Struct) -> Answer:
        return encode_response(HeartbeatResponse(), header.api_version, header.correlation_id + 1)

    with WireServer({ApiKey.HEARTBEAT: wrong}) as server, Connection(server.host, server.port) as connection:
        with pytest.raises(ConnectionLost, match="instead of"):
            connection.call(HeartbeatRequest())
        assert not connection.is_open


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">iib", 5, 1, 0) + b"",
    ],
)
def test_what_is_not_kafkas_protocol_is_connection_lost(answer: bytes) -> None:
    handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: lambda header, body: answer}
    with WireServer(handlers) as server, Connection(server.host, server.port) as connection:
        with pytest.raises(ConnectionLost):
            connection.versions()
        assert not connection.is_open


def test_a_response_above_the_limit_is_refused() -> None:
    big = MetadataResponse(cluster_id="x" * 10_000)
    with WireServer({ApiKey.METADATA: lambda header, body: big}) as server:
        small = Connection(server.host, server.port, max_response_bytes=5_000)
        with pytest.raises(ConnectionLost, match="limit is 5000"):
            small.call(MetadataRequest())
        with Connection(server.host, server.port, max_response_bytes=20_000) as connection:
            assert connection.call(MetadataRequest()) == big


def test_a_request_that_cannot_be_written_leaves_the_connection_usable() -> None:
    with WireServer(heartbeats(HeartbeatResponse())) as server, Connection(server.host, server.port) as connection:
        with pytest.raises(WireError):
            connection.call(HeartbeatRequest(generation_id=2**40))
        assert connection.call(HeartbeatRequest()) == HeartbeatResponse()


def test_a_sent_request_waits_for_nothing() -> None:
    arrived = threading.Event()

    def produce(header: RequestHeader, body: Struct) -> Answer:
        arrived.set()
        return None

    handlers = heartbeats(HeartbeatResponse(error_code=5)) | {ApiKey.PRODUCE: produce}
    with WireServer(handlers) as server, Connection(server.host, server.port) as connection:
        connection.send(ProduceRequest(acks=0))
        assert connection.call(HeartbeatRequest()).error_code == 5
        assert arrived.wait(5)


def test_abort_wakes_a_waiting_call() -> None:
    reached = threading.Event()

    def silent(header: RequestHeader, body: Struct) -> Answer:
        reached.set()
        return None

    with WireServer({ApiKey.HEARTBEAT: silent}) as server, Connection(server.host, server.port) as connection:
        threading.Thread(target=lambda: (reached.wait(10), connection.abort()), daemon=True).start()
        with pytest.raises(ConnectionLost):
            connection.call(HeartbeatRequest(), timeout_ms=60_000)


def test_closing_twice_or_aborting_what_is_closed_does_nothing() -> None:
    with WireServer() as server:
        connection = Connection(server.host, server.port)
        connection.close()
        connection.close()
        connection.abort()
        assert not connection.is_open


def test_only_declared_requests_can_be_sent() -> None:
    with WireServer() as server, Connection(server.host, server.port) as connection:
        not_a_request = HeartbeatResponse()
        with pytest.raises(InvariantBroken, match="HeartbeatResponse"):
            connection.call(not_a_request)
