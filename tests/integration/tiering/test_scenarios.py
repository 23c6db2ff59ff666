"""What Apache Kafka tests of its tiered storage, one by one, on whole brokers with stock clients.

Times and damaged answers have tests of their own (`tests/integration/broker/test_tiers.py`, `test_tier_on_s3.py`),
and so has an empty replica that becomes leader (`tests/integration/replication/test_tiered_replicas.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from appliance.base.ids import TopicPartition as Place
from appliance.base.object_store import ObjectStore
from appliance.client.client import Client
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.verify import PartitionReport, verify_tier
from tests.support.broker import RunningCluster, running_cluster
from tests.support.replicated import ReplicatedCluster, until

QUICK = {
    "tiering.task.interval.ms": "50",
    "tiering.retry.backoff.ms": "50",
    "tiering.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
}
TIERED = {
    "segment.bytes": "1048576",
    "retention.ms": "-1",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
    "remote.storage.enable": "true",
}
EARLIEST, LATEST, LOCAL, TIERED_TO = -2, -1, -4, -5
VALUE_BYTES = 50_000
RECORDS = 80
"""About 4 MB: three closed segments and an active one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=QUICK) as running:
        yield running


@cache
def admin_of(servers: str) -> AdminClient:
    """One that lives as long as its answers are waited for."""
    return AdminClient({"bootstrap.servers": servers, "log_level": 2})


def create(servers: str, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    everything = {**TIERED, **{name.replace("_", "."): value for name, value in configs.items()}}
    made = admin_of(servers).create_topics([NewTopic(topic, partitions, replicas, config=everything)])
    made[topic].result(30)


def alter(servers: str, topic: str, **configs: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin_of(servers).incremental_alter_configs([resource])[resource].result(30)


def values(first: int, count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def fill(servers: str, topic: str, first: int = 0, count: int = RECORDS, partition: int = 0, **options: object) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 2, **options})
    for value in values(first, count):
        producer.produce(topic, value + b" " * VALUE_BYTES, partition=partition)
    assert producer.flush(60) == 0


def offset(servers: str, topic: str, timestamp: int, partition: int = 0) -> int:
    with Client(servers) as client:
        return client.list_offsets({Place(topic, partition): timestamp})[Place(topic, partition)].offset


def left_the_disk(servers: str, topic: str, partition: int = 0, above: int = 40) -> int:
    """Wait until so much of it is only in the object store; returns the first local offset."""
    return until(
        lambda: local if (local := offset(servers, topic, LOCAL, partition)) > above else 0,
        f"{topic}-{partition} to leave the disk",
    )


def read(
    servers: str, topic: str, partition: int = 0, start: int | None = None, isolation: str = "read_uncommitted"
) -> list[bytes]:
    first = offset(servers, topic, EARLIEST, partition) if start is None else start
    config = {"bootstrap.servers": servers, "group.id": "r", "isolation.level": isolation, "log_level": 2}
    consumer = Consumer({**config, "auto.offset.reset": "error"})
    place = TopicPartition(topic, partition, first)
    end = consumer.get_watermark_offsets(place, timeout=30)[1]
    found: list[bytes] = []
    try:
        consumer.assign([place])

        def more() -> bool:
            for message in consumer.consume(500, 0.3):
                assert message.error() is None, message.error()
                found.append(message.value().rstrip())
            return consumer.position([place])[0].offset >= end or first == end

        until(more, f"all records of {topic}-{partition}")
        return found
    finally:
        consumer.close()


def report_of(store: ObjectStore, topic: str, partition: int = 0) -> PartitionReport:
    report = verify_tier(store)
    assert report.problems == []
    return next(one for one in report.partitions if (one.topic, one.partition) == (topic, partition))


def store_of(cluster: RunningCluster) -> DirectoryStore:
    return DirectoryStore(cluster.folder / "object-store")


def test_offload_and_read(cluster: RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    create(servers, "offload")
    fill(servers, "offload")
    local = left_the_disk(servers, "offload")
    assert read(servers, "offload") == values(0, RECORDS)
    assert report_of(store_of(cluster), "offload").end_offset >= local


def test_deletion_by_time(cluster: RunningCluster) -> None:
    servers, store = cluster.bootstrap_servers, store_of(cluster)
    create(servers, "by-time")
    fill(servers, "by-time")
    left_the_disk(servers, "by-time")
    alter(servers, "by-time", retention_ms="1", local_retention_ms="1")
    until(lambda: offset(servers, "by-time", EARLIEST) > 40, "old records to go")
    until(
        lambda: report_of(store, "by-time").segments == 0 and report_of(store, "by-time").garbage == 0, "objects to go"
    )
    assert read(servers, "by-time") == values(0, RECORDS)[offset(servers, "by-time", EARLIEST) :]


def test_deletion_by_size(cluster: RunningCluster) -> None:
    servers, store = cluster.bootstrap_servers, store_of(cluster)
    create(servers, "by-size")
    fill(servers, "by-size")
    left_the_disk(servers, "by-size")
    alter(servers, "by-size", retention_bytes=str(2 << 20))
    start = until(lambda: offset(servers, "by-size", EARLIEST), "old records to go")
    assert 15 < start < 45, "two of four megabytes stay, by whole segments"
    assert read(servers, "by-size") == values(start, RECORDS - start)
    until(lambda: report_of(store, "by-size").garbage == 0, "garbage to go")
    assert report_of(store, "by-size").start_offset == start


def test_deletion_by_log_start(cluster: RunningCluster) -> None:
    servers, store = cluster.bootstrap_servers, store_of(cluster)
    create(servers, "by-start")
    fill(servers, "by-start")
    left_the_disk(servers, "by-start")
    place = TopicPartition("by-start", 0, 30)
    admin_of(servers).delete_records([place])[TopicPartition("by-start", 0)].result(30)
    assert offset(servers, "by-start", EARLIEST) == 30
    assert read(servers, "by-start") == values(30, RECORDS - 30)
    assert report_of(store, "by-start").start_offset == 30


def test_transactions_over_tiers(cluster: RunningCluster) -> None:
    servers = cluster.bootstrap_servers
    create(servers, "transactions")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 2})
    producer.init_transactions(30)
    expected = []
    for number in range(6):
        producer.begin_transaction()
        for value in values(number * 20, 20):
            producer.produce("transactions", value + b" " * VALUE_BYTES, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            expected += values(number * 20, 20)
    left_the_disk(servers, "transactions", above=60)
    assert read(servers, "transactions", isolation="read_committed") == expected
    assert len(read(servers, "transactions")) == 120


def test_partition_growth(cluster: RunningCluster) -> None:
    servers, store = cluster.bootstrap_servers, store_of(cluster)
    create(servers, "growing")
    fill(servers, "growing")
    left_the_disk(servers, "growing")
    admin_of(servers).create_partitions([NewPartitions("growing", 2)])["growing"].result(30)
    until(lambda: len(admin_of(servers).list_topics("growing").topics["growing"].partitions) == 2, "a new partition")
    fill(servers, "growing", first=500, partition=1)
    left_the_disk(servers, "growing", partition=1)
    assert read(servers, "growing") == values(0, RECORDS)
    assert read(servers, "growing", partition=1) == values(500, RECORDS)
    assert report_of(store, "growing", 1).segments >= 2


def test_disabling_keeps_or_drops_what_is_in_the_tier_as_the_topic_says(cluster: RunningCluster) -> None:
    servers, store = cluster.bootstrap_servers, store_of(cluster)
    create(servers, "disabling")
    fill(servers, "disabling")
    folder = cluster.data_dir(1) / "disabling-0"
    # What is in both would stay in the tier until it leaves the disk.
    until(lambda: len(list(folder.glob("*.log"))) == 1, "all closed segments to leave the disk")
    local = left_the_disk(servers, "disabling")
    alter(servers, "disabling", remote_log_copy_disable="true", local_retention_bytes="-2", local_retention_ms="-2")
    tiered = report_of(store, "disabling").end_offset
    fill(servers, "disabling", first=RECORDS, count=60)
    assert read(servers, "disabling") == values(0, RECORDS + 60), "what is there stays readable"
    assert report_of(store, "disabling").end_offset == tiered, "and nothing more goes up"
    alter(servers, "disabling", remote_storage_enable="false", remote_log_delete_on_disable="true")
    until(lambda: offset(servers, "disabling", EARLIEST) >= local, "the log to begin on the disk")
    until(lambda: report_of(store, "disabling").segments + report_of(store, "disabling").garbage == 0, "objects to go")
    start = offset(servers, "disabling", EARLIEST)
    assert read(servers, "disabling") == values(start, RECORDS + 60 - start)


def restarted(folder: Path, spoil: bool) -> None:
    with running_cluster(folder, properties=QUICK) as first:
        create(first.bootstrap_servers, "restart")
        fill(first.bootstrap_servers, "restart")
        local = left_the_disk(first.bootstrap_servers, "restart")
        place = TopicPartition("restart", 0, 10)
        admin_of(first.bootstrap_servers).delete_records([place])[TopicPartition("restart", 0)].result(30)
    if spoil:
        for name in (
            "log-start-offset-checkpoint",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
        ):
            (folder / "broker-1" / name).write_text("not a checkpoint\n")
        (folder / "broker-1" / "restart-0" / "leader-epoch-checkpoint").write_text("0\n1\n7 what\n")
    with running_cluster(folder, properties=QUICK) as second:
        servers = second.bootstrap_servers
        assert offset(servers, "restart", LOCAL) >= local
        fill(servers, "restart", first=RECORDS, count=40)
        until(lambda: offset(servers, "restart", EARLIEST) == 10, "the tier's log start")
        assert read(servers, "restart", start=10) == values(10, RECORDS + 30)
        left_the_disk(servers, "restart", above=local + 20)
        assert read(servers, "restart") == values(10, RECORDS + 30)
        assert report_of(store_of(second), "restart").start_offset == 10


def test_restart(tmp_path: Path) -> None:
    restarted(tmp_path, spoil=False)


def test_corrupted_checkpoints(tmp_path: Path) -> None:
    restarted(tmp_path, spoil=True)


def test_reassignment_leader_change_and_unclean_election(tmp_path: Path) -> None:
    with ReplicatedCluster(tmp_path, properties=QUICK) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, "moving", replicas=2, min_insync_replicas="1")
        store = DirectoryStore(tmp_path / "object-store")
        fill(servers, "moving")
        left_the_disk(servers, "moving")
        state = cluster.state("moving")
        stays, goes = state.replicas[1], state.replicas[0]
        new = next(broker for broker in (1, 2, 3) if broker not in state.replicas)
        reassign(servers, "moving", [stays, new])
        until(lambda: sorted(cluster.state("moving").replicas) == sorted([stays, new]), "the new replicas")
        cluster.wait_for_isr("moving", stays, new)
        assert read(servers, "moving") == values(0, RECORDS), "reassignment"

        leader = cluster.leader("moving", other_than=goes)
        cluster.kill(leader)
        other = cluster.leader("moving", other_than=leader)
        fill(servers, "moving", first=RECORDS, count=40)
        assert read(servers, "moving") == values(0, RECORDS + 40), "leader change"
        left_the_disk(servers, "moving", above=RECORDS)
        tiered = report_of(store, "moving").end_offset

        cluster.kill(other)
        cluster.start(leader)
        alter(servers, "moving", unclean_leader_election_enable="true")
        assert cluster.leader("moving", other_than=other) == leader
        fill(servers, "moving", first=900, count=40)
        found = read(servers, "moving")
        assert found[:tiered] == values(0, RECORDS + 40)[:tiered], "a tiered record outlives an unclean election"
        assert found[-40:] == values(900, 40)
        cluster.start(other)
        cluster.wait_for_isr("moving", leader, other)
        assert read(servers, "moving") == found, "the one that was ahead follows"
        left_the_disk(servers, "moving", above=tiered + 10)
        assert read(servers, "moving") == found


def reassign(servers: str, topic: str, replicas: list[int]) -> None:
    from appliance.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )

    rows = [ReassignablePartition(partition_index=0, replicas=replicas)]
    with Client(servers) as client:
        answer = client.call(
            AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)])
        )
        assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0, answer
