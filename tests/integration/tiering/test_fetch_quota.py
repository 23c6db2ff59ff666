"""Readers of old offsets have a limit together (KIP-956): no more reads begin, and nobody else waits for them."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

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

KEY = "remote.log.manager.fetch.max.bytes.per.second"
METRICS_PORT = free_port()
PROPERTIES = {
    "tiering.task.interval.ms": "50",
    "log.retention.check.interval.ms": "100",
    "metrics.port": str(METRICS_PORT),
    # What was read counts for an hour, so that a reader who has to wait does so until the test is over.
    "remote.log.manager.fetch.quota.window.num": "60",
    "remote.log.manager.fetch.quota.window.size.seconds": "60",
}
TIERED = {"retention.ms": "-1", "segment.bytes": "1048576", "local.retention.bytes": "1", "file.delete.delay.ms": "0"}
RECORDS, VALUE_BYTES = 60, 50_000
EARLIEST_LOCAL = -4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=PROPERTIES) as running:
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=60_000) as connection:
        yield connection


def limit(cluster: RunningCluster, bytes_per_second: int) -> None:
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


def test_a_cold_reader_waits_and_a_hot_one_does_not(cluster: RunningCluster, connection: Connection) -> None:
    """Partition 0 lies in the object store, partition 1 on the disk."""
    cold, hot = 0, 1
    topic = new_topic(connection, partitions=2, configs=TIERED)
    for number in range(RECORDS):
        produce(connection, topic, batch_of(b"%06d" % number + b" " * VALUE_BYTES), partition=cold)
    until(
        lambda: list_offset(connection, topic, EARLIEST_LOCAL, partition=cold).offset > RECORDS // 2,
        "old records to leave the disk",
    )
    hot_size = produce_hot(connection, topic, hot)
    assert fetched(connection, topic, {cold: 0}, max_wait_ms=500)[0] > VALUE_BYTES
    assert metric("kafka_server_remotelogmanager_remote_fetch_throttle_time_max") == 0

    limit(cluster, 1)
    until(lambda: fetched(connection, topic, {cold: 0}) == [0], "the limit to hold")
    assert fetched(connection, topic, {cold: 0}, max_wait_ms=50) == [0], "as if there was nothing new"
    both = fetched(connection, topic, {cold: 0, hot: 0}, max_wait_ms=600_000)
    assert both == [0, hot_size], "what is on the disk comes at once, with the other one empty beside it"
    assert fetched(connection, topic, {cold: RECORDS - 1}, max_wait_ms=600_000)[0] > VALUE_BYTES, "its end is hot"
    assert list_offset(connection, topic, 0, partition=cold).offset == 0, "looking for a time is not limited"
    assert metric("kafka_server_remotelogmanager_remote_fetch_throttle_time_max") > 0
    assert metric("kafka_server_remotelogmanager_remote_fetch_throttle_time_avg") > 0

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2})
    try:
        consumer.assign([TopicPartition(topic.name, cold, 0), TopicPartition(topic.name, hot, 0)])
        found: list[tuple[int, int]] = []

        def more() -> None:
            for message in consumer.consume(100, 0.3):
                assert message.error() is None, message.error()
                found.append((message.partition(), message.offset()))

        until(lambda: more() or len(found) == 1, "the hot record")
        assert found == [(hot, 0)]
        limit(cluster, (1 << 63) - 1)
        until(lambda: more() or len(found) == RECORDS + 1, "all records")
        assert found == [(hot, 0), *((cold, number) for number in range(RECORDS))]
    finally:
        consumer.close()


def produce_hot(connection: Connection, topic: CreatableTopicResult, partition: int) -> int:
    records = batch_of(b"hot")
    produce(connection, topic, records, partition=partition)
    return len(records)
