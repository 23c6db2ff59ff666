"""Readers of old offsets have a limit together (KIP-956): no more reads begin, and nobody else waits for them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from appliance.client.connection import Connection
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.fetch import PartitionData
from tests.support.broker import RunningCluster, running_cluster
from tests.support.ports import free_port
from tests.support.replicated import until
from tests.support.requests import batch_of, fetch_request, list_offset, new_topic, partitions_of, produce
from tests.support.share_member import ShareMember, configure_group

KEY = "remote.log.manager.fetch.max.bytes.per.second"
METRICS_PORT = free_port()
PROPERTIES = {
    "tiering.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100",
    "metrics.port": str(METRICS_PORT),
    # A slow machine is not taken for a limit.
    "remote.fetch.max.wait.ms": "60000",
    # What was read counts for an hour, so that a reader who has to wait does so until the test is over.
    "remote.log.manager.fetch.quota.window.num": "60",
    "remote.log.manager.fetch.quota.window.size.seconds": "60",
}
TIERED = {"retention.ms": "-1", "segment.bytes": "1048576", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
RECORDS, VALUE_BYTES = 60, 50_000
EARLIEST_LOCAL = -4
COLD, HOT = 0, 1
"""Partitions: one of which all but the end lies in the object store, and one on the disk."""
UNLIMITED = (1 << 63) - 1
LONG_MS = 600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=PROPERTIES) as running:
        yield running


@pytest.fixture(scope="module")
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=60_000) as connection:
        yield connection


@pytest.fixture(scope="module")
def topic(connection: Connection) -> CreatableTopicResult:
    topic = new_topic(connection, partitions=2, configs=TIERED)
    for number in range(RECORDS):
        produce(connection, topic, batch_of(b"%06d" % number + b" " * VALUE_BYTES), partition=COLD)
    produce(connection, topic, batch_of(b"hot"), partition=HOT)
    until(
        lambda: list_offset(connection, topic, EARLIEST_LOCAL, partition=COLD).offset > RECORDS // 2,
        "old records to leave the disk",
    )
    return topic


@contextmanager
def limited(cluster: RunningCluster, connection: Connection, topic: CreatableTopicResult) -> Iterator[None]:
    """One byte a second, where more than that was read."""
    limit(cluster, UNLIMITED)
    until(lambda: fetched(connection, topic, {COLD: 0}, max_wait_ms=500) != [0], "old records to be read")
    limit(cluster, 1)
    until(lambda: fetched(connection, topic, {COLD: 0}) == [0], "the limit to hold")
    yield
    limit(cluster, UNLIMITED)


def limit(cluster: RunningCluster, bytes_per_second: int) -> None:
    """At any time, while brokers run."""
    entry = ConfigEntry(KEY, str(bytes_per_second), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    admin.incremental_alter_configs([resource])[resource].result(30)


def fetched(connection: Connection, topic: CreatableTopicResult, offsets: dict[int, int], **options: int) -> list[int]:
    """Sizes of what came of each partition, without an error."""
    answer: dict[int, PartitionData] = partitions_of(connection.call(fetch_request(topic, offsets, **options), 13))
    assert {row.error_code for row in answer.values()} == {0}
    return [len(answer[partition].records or b"") for partition in offsets]


def metric(name: str) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30).read().decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


def test_a_cold_reader_waits_and_a_hot_one_does_not(
    cluster: RunningCluster, connection: Connection, topic: CreatableTopicResult
) -> None:
    with limited(cluster, connection, topic):
        assert fetched(connection, topic, {COLD: 0}, max_wait_ms=50) == [0], "as if there was nothing new"
        cold, hot = fetched(connection, topic, {COLD: 0, HOT: 0}, max_wait_ms=LONG_MS)
        assert cold == 0 and hot > 0, "what is on the disk comes at once, with the other one empty beside it"
        assert fetched(connection, topic, {COLD: RECORDS - 1}, max_wait_ms=LONG_MS)[0] > VALUE_BYTES, "its end is hot"
        assert list_offset(connection, topic, 0, partition=COLD).offset == 0, "looking for a time is not limited"
        assert metric("kafka_server_remotelogmanager_remote_fetch_throttle_time_max") > 0
        assert metric("kafka_server_remotelogmanager_remote_fetch_throttle_time_avg") > 0


def test_a_stock_consumer_gets_the_rest_when_the_limit_is_lifted(
    cluster: RunningCluster, connection: Connection, topic: CreatableTopicResult
) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2})
    found: list[tuple[int, int]] = []

    def read_on() -> None:
        for message in consumer.consume(100, 0.3):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset()))

    try:
        with limited(cluster, connection, topic):
            consumer.assign([TopicPartition(topic.name, COLD, 0), TopicPartition(topic.name, HOT, 0)])
            until(lambda: read_on() or found, "the hot record")
            assert found == [(HOT, 0)]
        until(lambda: read_on() or len(found) == RECORDS + 1, "all records")
        assert found == [(HOT, 0), *((COLD, number) for number in range(RECORDS))]
    finally:
        consumer.close()


def test_a_session_looks_again_at_what_had_to_wait(
    cluster: RunningCluster, connection: Connection, topic: CreatableTopicResult
) -> None:
    with limited(cluster, connection, topic):
        first = connection.call(fetch_request(topic, {COLD: 0}, session_id=0, session_epoch=0), 13)
        assert first.session_id and not partitions_of(first)[COLD].records
        epoch = 1
        again = connection.call(fetch_request(topic, {}, session_id=first.session_id, session_epoch=epoch), 13)
        assert (again.error_code, partitions_of(again)) == (0, {})

    def comes() -> bool:
        nonlocal epoch
        epoch += 1
        request = fetch_request(topic, {}, session_id=first.session_id, session_epoch=epoch, max_wait_ms=500)
        rows = partitions_of(connection.call(request, 13))
        return COLD in rows and len(rows[COLD].records or b"") > VALUE_BYTES

    until(comes, "what had to wait")


def test_share_groups_have_the_same_limit(
    cluster: RunningCluster, connection: Connection, topic: CreatableTopicResult
) -> None:
    configure_group(connection, "shares", auto_offset_reset="earliest")
    member = ShareMember(("127.0.0.1", cluster.brokers[1].port), "shares", topic.name)
    try:
        member.join()
        with limited(cluster, connection, topic):
            assert [member.take(COLD, max_wait_ms=200) for _ in range(3)] == [{}] * 3
            until(lambda: member.take(HOT), "the hot record")
            assert [member.take(COLD, max_wait_ms=200) for _ in range(3)] == [{}] * 3
        until(lambda: member.take(COLD), "old records")
    finally:
        member.close()
