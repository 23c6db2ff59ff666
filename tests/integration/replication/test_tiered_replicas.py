"""Replicas of tiered topics: a new one begins where the object store ends, and may lead then."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.replicated import ReplicatedCluster, until

RECORDS = 300


def read_all(cluster: ReplicatedCluster) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "r", "log_level": 2})
    try:
        consumer.assign([TopicPartition("tiered", 0, 0)])
        values: list[bytes] = []

        def read_more() -> bool:
            values.extend(message.value()[:8] for message in consumer.consume(1_000, 0.5) if message.error() is None)
            return len(values) >= RECORDS

        until(read_more, "all records")
        return values
    finally:
        consumer.close()


def first_local_offset(cluster: ReplicatedCluster, broker_id: int) -> int:
    folder = cluster.folder / f"broker-{broker_id}" / "tiered-0"
    return min((int(path.stem) for path in folder.glob("*.log")), default=-1)


def test_an_empty_replica_begins_where_the_object_store_ends_and_can_lead(tmp_path: Path) -> None:
    properties = {"tiering.task.interval.ms": "100", "log.retention.check.interval.ms": "300"}
    with ReplicatedCluster(tmp_path, properties=properties) as cluster:
        config = {
            "remote.storage.enable": "true",
            "segment.bytes": "1048576",
            "local.retention.ms": "1",
            "file.delete.delay.ms": "0",
        }
        cluster.create("tiered", **config)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
        for number in range(RECORDS):
            producer.produce("tiered", b"%08d" % number + b"x" * 20_000, partition=0)
        assert producer.flush(60) == 0
        leader = cluster.leader("tiered")
        for broker_id in (1, 2, 3):
            until(
                lambda n=broker_id: first_local_offset(cluster, n) > 0, f"broker {broker_id} to let go of old segments"
            )
        empty = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
        cluster.kill(empty)
        shutil.rmtree(cluster.folder / f"broker-{empty}")
        cluster.start(empty)
        cluster.wait_for_isr("tiered", 1, 2, 3)
        assert first_local_offset(cluster, empty) > 0, "it did not copy what the object store has"
        for broker_id in (1, 2, 3):
            if broker_id != empty:
                cluster.kill(broker_id)
        cluster.wait_for_leader("tiered", empty)
        assert read_all(cluster) == [b"%08d" % number for number in range(RECORDS)]
