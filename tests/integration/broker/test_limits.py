"""A broker's limits are those of its configs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.config import BrokerConfig
from appliance.broker_actors.broker import limits_of
from appliance.client.connection import Connection
from appliance.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from appliance.wire.messages.fetch import FetchResponse
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, fetch_request, new_topic, partitions_of, produce, values_of

PROPERTIES = {
    "fetch.max.bytes": "2500",
    "max.request.partition.size.limit": "3",
    "max.incremental.fetch.session.cache.slots": "1",
    "min.incremental.fetch.session.eviction.ms": "3600000",
}

LISTENER_LIMITS = {
    "socket.request.max.bytes": "max_frame_bytes",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "connection.max.in.flight.requests": "max_in_flight",
    "queued.max.request.bytes": "queued_request_bytes",
    "socket.send.buffer.bytes": "send_buffer_bytes",
    "socket.send.buffer.large.bytes": "large_send_buffer_bytes",
    "socket.listen.backlog.size": "accept_backlog",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder: Path = tmp_path_factory.mktemp("limits")
    with running_cluster(folder, properties=PROPERTIES) as running:
        yield running


@pytest.mark.parametrize(("key", "limit"), LISTENER_LIMITS.items())
def test_each_limit_of_a_listener_has_its_config(key: str, limit: str) -> None:
    assert getattr(limits_of(BrokerConfig({key: "4321"})), limit) == 4321


def test_an_answer_to_a_fetch_has_at_most_fetch_max_bytes(connection: Connection) -> None:
    topic = new_topic(connection, partitions=2)
    for partition in (0, 0, 0, 1, 1):
        produce(connection, topic, batch_of(b"x" * 1_000), partition=partition)
    for offsets in ({0: 0}, {0: 0, 1: 0}):
        found = partitions_of(connection.call(fetch_request(topic, offsets, max_bytes=1 << 20), 12))
        assert sum(len(values_of(data.records)) for data in found.values()) == 2


def test_there_are_as_many_sessions_as_slots(connection: Connection) -> None:
    topic = new_topic(connection)

    def opened() -> FetchResponse:
        return connection.call(fetch_request(topic, {0: 0}, session_epoch=0), 12)

    first = opened()
    assert first.session_id != 0
    assert opened().session_id == 0, "none is left, and nobody has been idle for long enough"
    ended = fetch_request(topic, {0: 0}, session_id=first.session_id, session_epoch=-1)
    connection.call(ended, 12)
    assert opened().session_id != 0


def test_partitions_are_described_a_few_at_a_time(connection: Connection) -> None:
    topic = new_topic(connection, partitions=7)
    found: list[int] = []
    cursor: Cursor | None = None
    for count in (3, 3, 1):
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic.name)], cursor=cursor)
        response = connection.call(request)
        partitions = response.topics[0].partitions
        assert len(partitions) == count
        found += [partition.partition_index for partition in partitions]
        if response.next_cursor is not None:
            told = response.next_cursor
            cursor = Cursor(topic_name=told.topic_name, partition_index=told.partition_index)
    assert found == list(range(7))
    assert response.next_cursor is None
