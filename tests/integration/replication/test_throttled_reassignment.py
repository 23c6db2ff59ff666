"""A reassignment under a throttle takes its time, on real processes; without one it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from appliance.client.client import Client
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.replicated import ReplicatedCluster, until

RATE = 1_000_000
RECORD_BYTES = 10_000
RECORDS = 400
BATCH_BYTES_MAX = 65_536


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path_factory.mktemp("throttled"), brokers=2) as running:
        yield running


def alter(cluster: ReplicatedCluster, kind: ResourceType, name: str, **configs: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for done in cluster.admin.incremental_alter_configs([resource]).values():
        done.result(30)


def fill(cluster: ReplicatedCluster, topic: str) -> None:
    """On broker 1, in batches that are much smaller than the rate."""
    cluster.admin.create_topics([NewTopic(topic, 1, replica_assignment=[[1]])])[topic].result(30)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": BATCH_BYTES_MAX // 2, "log_level": 2}
    producer = Producer(config)
    for number in range(RECORDS):
        producer.produce(topic, bytes([number % 256]) * RECORD_BYTES, partition=0)
    assert producer.flush(30) == 0


def seconds_to_move(cluster: ReplicatedCluster, topic: str) -> float:
    """From broker 1 to broker 2."""
    row = ReassignablePartition(partition_index=0, replicas=[2])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[row])])
    began = time.monotonic()
    with Client(cluster.bootstrap_servers) as client:
        assert client.call(request).responses[0].partitions[0].error_code == 0
    until(lambda: (state := cluster.state(topic)) is not None and state.replicas == [2], f"{topic} to have moved", 60)
    return time.monotonic() - began


@pytest.mark.parametrize(("side", "broker_id"), [("leader", 1), ("follower", 2)])
def test_a_throttled_move_takes_no_less_than_its_bytes_at_the_rate(
    cluster: ReplicatedCluster, side: str, broker_id: int
) -> None:
    topic = f"by-the-{side}"
    fill(cluster, topic)
    alter(cluster, ResourceType.BROKER, str(broker_id), **{f"{side}_replication_throttled_rate": str(RATE)})
    alter(cluster, ResourceType.TOPIC, topic, **{f"{side}_replication_throttled_replicas": f"0:{broker_id}"})
    # The first answer is not waited for.
    least_s = (RECORDS * RECORD_BYTES - RATE - BATCH_BYTES_MAX) / RATE
    assert seconds_to_move(cluster, topic) >= least_s > 2
    assert cluster.leader(topic) == 2
