from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.image import MetadataImage
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers import api_versions, metadata
from appliance.server.requests import Request
from appliance.wire.api import ApiKey
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from appliance.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from appliance.wire.messages.produce import ProduceRequest
from appliance.wire.schema import Struct
from tests.support.server import ServerThread, is_closed, receive_frame, running_server


def fail(context: object, request: Request) -> Struct:
    body = request.body
    assert isinstance(body, DescribeClusterRequest | MetadataRequest)
    if request.client_id == "kafka-error":
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "not today")
    raise RuntimeError("on purpose")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    broker = cast(Broker, SimpleNamespace(image=MetadataImage()))
    handlers = {
        ApiKey.API_VERSIONS: HandlerEntry(lambda _, request: api_versions.handle(broker, request)),
        ApiKey.METADATA: HandlerEntry(fail, error=metadata.failed),
        ApiKey.DESCRIBE_CLUSTER: HandlerEntry(fail),
        ApiKey.LIST_OFFSETS: HandlerEntry(fail),
        ApiKey.PRODUCE: HandlerEntry(fail),
    }
    with running_server(handlers) as running:
        yield running


def lives(sock: socket.socket) -> bool:
    sock.sendall(encode_request(ApiVersionsRequest(), 0, 99, None))
    correlation_id, response = decode_response(ApiVersionsResponse, receive_frame(sock), 0)
    return correlation_id == 99 and response.error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_names_what_is_served(server: ServerThread, version: int) -> None:
    with server.connect() as sock:
        sock.sendall(
            encode_request(
                ApiVersionsRequest(client_software_name="test", client_software_version="1"), version, 1, "t"
            )
        )
        _, response = decode_response(ApiVersionsResponse, receive_frame(sock), version)
    served = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert served[ApiKey.METADATA] == (0, 13)
    assert served[ApiKey.PRODUCE] == (0, 13), "librdkafka does not compress without version 0 (KAFKA-18659)"
    assert ApiKey.FETCH not in served


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_its_range(server: ServerThread) -> None:
    with server.connect() as sock:
        sock.sendall(struct.pack(">ihhihb", 11, ApiKey.API_VERSIONS, 77, 5, -1, 0))
        correlation_id, response = decode_response(ApiVersionsResponse, receive_frame(sock), 0)
        assert correlation_id == 5
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 4)]
        assert lives(sock)


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (-5, 0), (3, 99), (3, -1), (1, 4), (0, 2)])
def test_an_unknown_api_or_version_ends_its_connection_only(server: ServerThread, api_key: int, version: int) -> None:
    with server.connect() as good, server.connect() as bad:
        bad.sendall(struct.pack(">ihhih", 10, api_key, version, 5, -1))
        assert is_closed(bad)
        assert lives(good)


def test_a_body_that_cannot_be_read_ends_its_connection_only(server: ServerThread) -> None:
    with server.connect() as good, server.connect() as bad:
        # One topic promised, nothing there.
        bad.sendall(struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 5, -1, 1))
        assert is_closed(bad)
        assert lives(good)


def test_a_failing_handler_answers_with_an_error_and_keeps_the_connection(server: ServerThread) -> None:
    with server.connect() as sock:
        sock.sendall(encode_request(DescribeClusterRequest(), 1, 1, "t"))
        _, response = decode_response(DescribeClusterResponse, receive_frame(sock), 1)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert lives(sock)


def test_a_kafka_error_is_answered_with_its_code_and_message(server: ServerThread) -> None:
    with server.connect() as sock:
        sock.sendall(encode_request(DescribeClusterRequest(), 1, 1, "kafka-error"))
        _, response = decode_response(DescribeClusterResponse, receive_frame(sock), 1)
    assert (response.error_code, response.error_message) == (ErrorCode.POLICY_VIOLATION, "not today")


def test_an_api_without_a_common_error_says_it_for_each_of_its_parts(server: ServerThread) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")])
    with server.connect() as sock:
        sock.sendall(encode_request(request, 4, 1, "t"))
        _, response = decode_response(MetadataResponse, receive_frame(sock), 4)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", -1), ("b", -1)]


def test_an_api_that_cannot_say_that_it_failed_loses_its_connection_only(server: ServerThread) -> None:
    with server.connect() as good, server.connect() as bad:
        bad.sendall(encode_request(ProduceRequest(acks=1), 9, 1, "t"))
        assert is_closed(bad)
        assert lives(good)
