from __future__ import annotations

import os
import threading
import time
import uuid

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import parse_header
from appliance.wire.messages.delete_topics import DeleteTopicsRequest
from appliance.wire.messages.fetch import FetchRequest, FetchResponse, ForgottenTopic, ReplicaState
from tests.support.broker import RunningCluster
from tests.support.requests import (
    batch_of,
    fetch,
    fetch_request,
    new_topic,
    partitions_of,
    produce,
    values_of,
)

VERSIONS = range(4, 19)
WAIT_MS = 5_000


def connect(cluster: RunningCluster) -> Connection:
    return Connection("127.0.0.1", cluster.brokers[1].port, client_id="other", timeout_ms=10_000)


class LongPoll:
    """A fetch that waits, in a thread and on a connection of its own."""

    def __init__(self, cluster: RunningCluster, request: FetchRequest, version: int = 12) -> None:
        self._cluster = cluster
        self._request = request
        self._version = version
        self.response = FetchResponse()
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        # What is about to happen must find it waiting; coming too early would still give the right answer.
        time.sleep(0.05)

    def _run(self) -> None:
        with connect(self._cluster) as connection:
            began = time.monotonic()
            self.response = connection.call(self._request, self._version)
            self.seconds = time.monotonic() - began

    def result(self) -> FetchResponse:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.response


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_brings_the_records(connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    for value in (b"a", b"b", b"c"):
        produce(connection, topic, batch_of(value))
    data = fetch(connection, topic, 1, version=version)
    assert data.error_code == 0
    assert values_of(data.records) == [b"b", b"c"]
    assert (data.high_watermark, data.last_stable_offset) == (3, 3)
    assert data.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_at_the_end_there_is_nothing_and_beyond_it_an_error(connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    produce(connection, topic, batch_of(b"a"))
    end = fetch(connection, topic, 1, version=version)
    assert (end.error_code, end.high_watermark, end.records) == (0, 1, b"")
    assert fetch(connection, topic, 2, version=version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(connection, topic, -1, version=version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_batch_that_holds_the_offset_comes_whole(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, batch_of(b"a", b"b", b"c"))
    produce(connection, topic, batch_of(b"d"))
    data = fetch(connection, topic, 1)
    assert data.records is not None
    assert parse_header(data.records).base_offset == 0
    assert values_of(data.records) == [b"a", b"b", b"c", b"d"]


def test_the_first_batch_comes_whole_even_above_the_limits(connection: Connection) -> None:
    topic = new_topic(connection)
    large = b"x" * 100_000
    produce(connection, topic, batch_of(large))
    produce(connection, topic, batch_of(large))
    response = connection.call(fetch_request(topic, {0: 0}, max_bytes=10, partition_max_bytes=10), 12)
    assert values_of(partitions_of(response)[0].records) == [large]


def test_max_bytes_is_shared_among_partitions_in_their_order(connection: Connection) -> None:
    topic = new_topic(connection, partitions=3)
    for partition in range(3):
        for _ in range(4):
            produce(connection, topic, batch_of(b"x" * 1_000), partition=partition)
    size = len(batch_of(b"x" * 1_000))
    request = fetch_request(topic, {2: 0, 0: 0, 1: 0}, max_bytes=5 * size + 10, partition_max_bytes=3 * size)
    response = connection.call(request, 12)
    found = partitions_of(response)
    assert list(found) == [2, 0, 1]
    assert [len(values_of(found[partition].records)) for partition in (2, 0, 1)] == [3, 2, 0]


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_waiting_fetch_wakes_when_records_come(cluster: RunningCluster, connection: Connection, version: int) -> None:
    topic = new_topic(connection)
    poll = LongPoll(cluster, fetch_request(topic, {0: 0}, max_wait_ms=WAIT_MS), version)
    produce(connection, topic, batch_of(b"now"))
    assert values_of(partitions_of(poll.result())[0].records) == [b"now"]
    assert poll.seconds < WAIT_MS / 1000 / 2


def test_it_waits_for_min_bytes_over_all_its_partitions(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection, partitions=2)
    size = len(batch_of(b"x" * 100))
    poll = LongPoll(cluster, fetch_request(topic, {0: 0, 1: 0}, max_wait_ms=WAIT_MS, min_bytes=2 * size))
    produce(connection, topic, batch_of(b"x" * 100), partition=0)
    time.sleep(0.05)
    assert poll.seconds == 0
    produce(connection, topic, batch_of(b"x" * 100), partition=1)
    assert {number: len(values_of(data.records)) for number, data in partitions_of(poll.result()).items()} == {
        0: 1,
        1: 1,
    }
    assert poll.seconds < WAIT_MS / 1000 / 2


def test_it_answers_empty_when_its_time_is_over(connection: Connection) -> None:
    topic = new_topic(connection)
    began = time.monotonic()
    response = connection.call(fetch_request(topic, {0: 0}, max_wait_ms=100), 12)
    assert 0.09 <= time.monotonic() - began < 2
    assert partitions_of(response)[0].records == b""


def test_min_bytes_0_does_not_wait(connection: Connection) -> None:
    topic = new_topic(connection)
    began = time.monotonic()
    connection.call(fetch_request(topic, {0: 0}, max_wait_ms=WAIT_MS, min_bytes=0), 12)
    assert time.monotonic() - began < 1


def test_an_error_does_not_wait(connection: Connection) -> None:
    topic = new_topic(connection)
    began = time.monotonic()
    response = connection.call(fetch_request(topic, {0: 0, 9: 0}, max_wait_ms=WAIT_MS), 12)
    assert time.monotonic() - began < 1
    assert partitions_of(response)[9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_wakes_those_who_wait_for_it(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection)
    poll = LongPoll(cluster, fetch_request(topic, {0: 0}, max_wait_ms=WAIT_MS), 12)
    connection.call(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=1_000), 3)
    assert partitions_of(poll.result())[0].error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert poll.seconds < WAIT_MS / 1000 / 2


def test_a_waiting_client_that_goes_away_leaves_nothing_behind(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection)
    with connect(cluster) as other:
        assert other._socket is not None
        from appliance.wire.codec import encode_request

        other._socket.sendall(encode_request(fetch_request(topic, {0: 0}, max_wait_ms=60_000), 12, 1, "t"))
        time.sleep(0.05)
    produce(connection, topic, batch_of(b"x"))
    assert values_of(fetch(connection, topic, 0).records) == [b"x"]


def test_unknown_topics_are_said_so_by_name_and_by_id(connection: Connection) -> None:
    nobody = ("nobody", uuid.uuid4())
    by_name = connection.call(fetch_request(nobody, {0: 0}), 12)
    assert partitions_of(by_name)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = connection.call(fetch_request(nobody, {0: 0}), 13)
    assert partitions_of(by_id)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_compared(connection: Connection) -> None:
    topic = new_topic(connection)
    for epoch, code in ((0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NONE)):
        request = fetch_request(topic, {0: 0})
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert partitions_of(connection.call(request, 12))[0].error_code == code


def test_a_reader_whose_last_epoch_is_unknown_is_told_where_logs_part(connection: Connection) -> None:
    topic = new_topic(connection)
    produce(connection, topic, batch_of(b"a"))
    request = fetch_request(topic, {0: 1})
    request.topics[0].partitions[0].last_fetched_epoch = 0
    assert partitions_of(connection.call(request, 12))[0].error_code == 0
    request.topics[0].partitions[0].last_fetched_epoch = 3
    assert partitions_of(connection.call(request, 12))[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_nobody_follows_who_is_not_registered(connection: Connection) -> None:
    topic = new_topic(connection)
    request = fetch_request(topic, {0: 0})
    request.replica_state = ReplicaState(replica_id=7, replica_epoch=1)
    assert connection.call(request, 18).error_code == ErrorCode.STALE_BROKER_EPOCH
    older = fetch_request(topic, {0: 0}, replica_id=7)
    assert connection.call(older, 12).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_answers_only_what_changed(connection: Connection, version: int) -> None:
    topic = new_topic(connection, partitions=3)
    offsets = {0: 0, 1: 0, 2: 0}
    first = connection.call(fetch_request(topic, offsets, session_id=0, session_epoch=0), version)
    assert first.session_id != 0
    assert sorted(partitions_of(first)) == [0, 1, 2]

    def again(epoch: int, changed: dict[int, int] | None = None) -> FetchResponse:
        request = fetch_request(topic, changed or {}, session_id=first.session_id, session_epoch=epoch)
        if not changed:
            request.topics = []
        return connection.call(request, version)

    assert partitions_of(again(1)) == {}
    produce(connection, topic, batch_of(b"x"), partition=1)
    second = again(2)
    assert {number: values_of(data.records) for number, data in partitions_of(second).items()} == {1: [b"x"]}
    assert second.session_id == first.session_id
    third = again(3, {1: 1})
    assert partitions_of(third) == {}
    request = fetch_request(topic, {}, session_id=first.session_id, session_epoch=4)
    request.topics = []
    request.forgotten_topics_data = [ForgottenTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[1])]
    connection.call(request, version)
    produce(connection, topic, batch_of(b"y"), partition=1)
    assert partitions_of(again(5)) == {}
    assert again(5).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_nobody_knows_is_an_error(connection: Connection) -> None:
    topic = new_topic(connection)
    response = connection.call(fetch_request(topic, {0: 0}, session_id=12_345, session_epoch=1), 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.responses == []


def test_a_session_wakes_for_one_of_its_partitions(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection, partitions=4)
    first = connection.call(fetch_request(topic, dict.fromkeys(range(4), 0), session_epoch=0), 12)
    request = fetch_request(topic, {}, max_wait_ms=WAIT_MS, session_id=first.session_id, session_epoch=1)
    request.topics = []
    poll = LongPoll(cluster, request)
    produce(connection, topic, batch_of(b"x"), partition=2)
    assert list(partitions_of(poll.result())) == [2]


def test_large_answers_reach_slow_readers_whole(connection: Connection) -> None:
    topic = new_topic(connection)
    values = [bytes([number]) * 200_000 for number in range(40)]
    for value in values:
        produce(connection, topic, batch_of(value))
    offset, found = 0, []
    while offset < len(values):
        request = fetch_request(topic, {0: offset}, max_bytes=50 << 20, partition_max_bytes=50 << 20)
        data = partitions_of(connection.call(request, 12))[0]
        new = values_of(data.records)
        found += new
        offset += len(new)
    assert found == values


def test_pages_that_left_the_cache_are_read_by_a_helper(cluster: RunningCluster, connection: Connection) -> None:
    topic = new_topic(connection)
    values = [bytes([number]) * 50_000 for number in range(40)]
    for value in values:
        produce(connection, topic, batch_of(value))
    (path,) = (cluster.data_dir(1) / f"{topic.name}-0").glob("*.log")
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    request = fetch_request(topic, {0: 0}, max_bytes=50 << 20, partition_max_bytes=50 << 20)
    assert values_of(partitions_of(connection.call(request, 12))[0].records) == values
