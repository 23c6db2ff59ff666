"""The short way of a fetch gives, byte for byte, what the long way gives, and leaves to it whatever is not ordinary."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.server.handlers import fetch_fast
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.fetch import FetchRequest, FetchResponse
from tests.support.broker import RunningCluster
from tests.support.requests import batch_of, fetch_request, new_topic, partitions_of, produce, values_of
from tests.support.server import receive_frame

Ask = Callable[[FetchRequest, int], bytes]


class ShortWay:
    """Whether the short way was taken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = 0
        real = fetch_fast._answer

        def answer(*arguments: Any) -> Any:
            found = real(*arguments)
            self.answers += found is not None
            return found

        monkeypatch.setattr(fetch_fast, "_answer", answer)


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> ShortWay:
    return ShortWay(monkeypatch)


@pytest.fixture
def ask(cluster: RunningCluster) -> Iterator[Ask]:
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10) as sock:

        def send(request: FetchRequest, version: int) -> bytes:
            sock.sendall(encode_request(request, version, 7, "test"))
            return receive_frame(sock)

        yield send


@pytest.fixture
def ask_the_long_way(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10) as sock:

        def send(request: FetchRequest, version: int) -> bytes:
            with monkeypatch.context() as patched:
                patched.setattr(fetch_fast, "LAST_VERSION", -1)
                sock.sendall(encode_request(request, version, 7, "test"))
                return receive_frame(sock)

        yield send


def filled(connection: Connection, value_bytes: int, count: int = 4) -> CreatableTopicResult:
    topic = new_topic(connection)
    for number in range(count):
        assert produce(connection, topic, batch_of(bytes([number]) * value_bytes)).error_code == 0
    return topic


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("value_bytes", [10, 200, 30_000])
@pytest.mark.parametrize("version", range(4, 17))
def test_both_ways_give_the_same_bytes(
    connection: Connection,
    short_way: ShortWay,
    ask: Ask,
    ask_the_long_way: Ask,
    version: int,
    value_bytes: int,
    isolation_level: int,
) -> None:
    topic = filled(connection, value_bytes)
    for number, offset in enumerate((0, 2, 3)):
        request = fetch_request(topic, {0: offset}, isolation_level=isolation_level)
        long, short = ask_the_long_way(request, version), ask(request, version)
        assert short == long
        assert short_way.answers == number + 1, "not for those that went the long way"
        _, response = decode_response(FetchResponse, short, version)
        assert len(values_of(partitions_of(response)[0].records)) == 4 - offset


def test_limits_are_those_of_each_request(connection: Connection, short_way: ShortWay, ask: Ask) -> None:
    topic = filled(connection, 1_000)
    for partition_max_bytes, count in ((1, 1), (2_500, 2), (1 << 20, 4)):
        answer = ask(fetch_request(topic, {0: 0}, partition_max_bytes=partition_max_bytes), 12)
        _, response = decode_response(FetchResponse, answer, 12)
        assert len(values_of(partitions_of(response)[0].records)) == count
    assert short_way.answers == 3


def test_what_is_not_ordinary_goes_the_long_way(connection: Connection, short_way: ShortWay, ask: Ask) -> None:
    topic = filled(connection, 100)
    ask(fetch_request(topic, {0: 0}), 12)
    assert short_way.answers == 1

    def error_of(request: FetchRequest) -> int:
        _, response = decode_response(FetchResponse, ask(request, 12), 12)
        return partitions_of(response)[0].error_code

    assert error_of(fetch_request(topic, {0: 4})) == 0, "the end"
    assert error_of(fetch_request(topic, {0: 5})) == ErrorCode.OFFSET_OUT_OF_RANGE, "beyond it"
    assert error_of(fetch_request(topic, {0: 0}, min_bytes=1 << 20)) == 0, "too little"
    assert error_of(fetch_request(("nobody", topic.topic_id), {0: 0})) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wrong_epoch = fetch_request(topic, {0: 0})
    wrong_epoch.topics[0].partitions[0].current_leader_epoch = 7
    assert error_of(wrong_epoch) == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error_of(fetch_request(topic, {0: 0}, session_epoch=0)) == 0, "a session"
    assert short_way.answers == 1
    assert error_of(fetch_request(topic, {0: 0})) == 0
    assert short_way.answers == 2


def test_a_new_leader_epoch_or_topic_of_the_same_name_is_looked_up_anew(
    connection: Connection, short_way: ShortWay, ask: Ask
) -> None:
    from appliance.wire.messages.delete_topics import DeleteTopicsRequest

    topic = filled(connection, 100)
    ask(fetch_request(topic, {0: 0}), 12)
    connection.call(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=5_000), 3)
    new = new_topic(connection, name=topic.name)
    assert produce(connection, new, batch_of(b"new")).error_code == 0
    _, response = decode_response(FetchResponse, ask(fetch_request(new, {0: 0}), 12), 12)
    assert values_of(partitions_of(response)[0].records) == [b"new"]
