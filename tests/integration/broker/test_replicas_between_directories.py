"""Replicas move between the data directories of a running broker, and nobody who writes or reads notices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from appliance.wire.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.broker import RunningCluster, running_cluster
from tests.support.replicated import until
from tests.support.requests import batch_of, new_topic, produce

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_CONFIGS = 4
WAIT_S = 60.0


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / "disk1", tmp_path / "disk2"]


@pytest.fixture
def cluster(tmp_path: Path, disks: list[Path]) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path, log_dirs=disks) as cluster:
        yield cluster


def connect(cluster: RunningCluster) -> Connection:
    host, _, port = cluster.bootstrap_servers.partition(":")
    return Connection(host, int(port), timeout_ms=30_000)


def alter(connection: Connection, path: Path | str, topic: str, *partitions: int) -> list[int]:
    """The error code of each partition."""
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[*partitions])
    answer = connection.call(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[wanted])]))
    return [row.error_code for result in answer.results for row in result.partitions]


def places(connection: Connection, topic: str, partition: int = 0) -> dict[str, DescribeLogDirsPartition]:
    """What lies of a partition in which directory."""
    return {
        found.log_dir: row
        for found in connection.call(DescribeLogDirsRequest(topics=None)).results
        for each in found.topics
        if each.name == topic
        for row in each.partitions
        if row.partition_index == partition
    }


def place(connection: Connection, topic: str) -> Path:
    (where,) = places(connection, topic)
    return Path(where)


def elsewhere(cluster: RunningCluster, disks: list[Path], where: Path) -> Path:
    (other,) = [disk / "broker-1" for disk in disks if disk / "broker-1" != where]
    return other


def has_moved(connection: Connection, topic: str, to: Path) -> bool:
    found = places(connection, topic)
    return list(found) == [str(to)] and not found[str(to)].is_future_key


def throttle(connection: Connection, rate: int | None) -> None:
    operation = 0 if rate is not None else 1
    config = AlterableConfig(name=RATE, config_operation=operation, value=None if rate is None else str(rate))
    resource = AlterConfigsResource(resource_type=BROKER_CONFIGS, resource_name="1", configs=[config])
    (row,) = connection.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert row.error_code == ErrorCode.NONE, row


def values(cluster: RunningCluster, topic: str, count: int) -> list[bytes | None]:
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**config, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []

    def read() -> bool:
        for message in consumer.consume(1_000, 0.5):
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            found.append(message.value())
        return len(found) >= count

    until(read, f"{count} records", WAIT_S)
    consumer.close()
    return found


class Load:
    """An idempotent producer on a thread of its own."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        )
        self._topic = topic
        self._stopping = threading.Event()
        self.sent = self.acknowledged = 0
        self.errors: list[object] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self.sent - self.acknowledged < 100:
                for _ in range(10):
                    self._producer.produce(self._topic, b"%d" % self.sent, partition=0, on_delivery=self._delivered)
                    self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: object, _: object) -> None:
        self.acknowledged += 1
        if error is not None:
            self.errors.append(error)

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        assert not self.errors
        return self.sent

    def wait(self, more: int) -> None:
        goal = self.acknowledged + more
        until(lambda: self.acknowledged >= goal or self.errors, f"{more} acknowledgements", WAIT_S)


@pytest.mark.parametrize("configs", [{}, {"flush.messages": "1"}, {"cleanup.policy": "compact"}], ids=str)
def test_a_replica_moves_there_and_back_under_load(
    cluster: RunningCluster, disks: list[Path], configs: dict[str, str]
) -> None:
    with connect(cluster) as connection:
        small = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "1.0", **configs}
        name = new_topic(connection, configs=small).name
        if "cleanup.policy" in configs:
            for _ in range(20):
                assert produce_keyed(cluster, name) == 0
            move_both_ways(connection, cluster, disks, name)
            assert len(values(cluster, name, 20)) == 20
            return
        load = Load(cluster, name)
        load.wait(500)
        move_both_ways(connection, cluster, disks, name, load)
        count = load.stop()
        assert values(cluster, name, count) == [b"%d" % number for number in range(count)]


def produce_keyed(cluster: RunningCluster, topic: str) -> int:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"value", b"key", partition=0)
    return producer.flush(WAIT_S)


def move_both_ways(
    connection: Connection, cluster: RunningCluster, disks: list[Path], topic: str, load: Load | None = None
) -> None:
    for _ in range(2):
        source = place(connection, topic)
        target = elsewhere(cluster, disks, source)
        assert alter(connection, target, topic, 0) == [ErrorCode.NONE]
        until(lambda to=target: has_moved(connection, topic, to), "the move", WAIT_S)
        assert not (source / f"{topic}-0").exists()
        assert (target / f"{topic}-0").is_dir()
        if load is not None:
            load.wait(200)


def test_a_move_is_seen_and_throttled_and_goes_on_after_a_restart(cluster: RunningCluster, disks: list[Path]) -> None:
    with connect(cluster) as connection:
        topic = new_topic(connection)
        for number in range(40):
            assert produce(connection, topic, batch_of(b"%d" % number * 20_000)).error_code == ErrorCode.NONE
        throttle(connection, 1_000)
        source = place(connection, topic.name)
        target = elsewhere(cluster, disks, source)
        assert alter(connection, target, topic.name, 0) == [ErrorCode.NONE]
        until(lambda: places(connection, topic.name)[str(target)].partition_size > 0, "some to be copied", WAIT_S)
        found = places(connection, topic.name)
        assert found[str(target)].is_future_key and not found[str(source)].is_future_key
        assert 0 < found[str(target)].offset_lag <= 40
        # The same again changes nothing.
        assert alter(connection, target, topic.name, 0) == [ErrorCode.NONE]
    cluster.brokers[1].stop()
    (future,) = target.glob(f"{topic.name}-0.*-future")
    cluster.start_broker(1).wait_until_ready()
    with connect(cluster) as connection:
        until(lambda: len(places(connection, topic.name)) == 2, "the move to go on", WAIT_S)
        assert place_of_future(connection, topic.name) == target
        throttle(connection, None)
        until(lambda: has_moved(connection, topic.name, target), "the move", WAIT_S)
        assert not future.exists()
        assert values(cluster, topic.name, 40) == [b"%d" % number * 20_000 for number in range(40)]


def place_of_future(connection: Connection, topic: str) -> Path:
    (where,) = [path for path, row in places(connection, topic).items() if row.is_future_key]
    return Path(where)


def test_a_move_is_given_up_when_its_replica_is_to_stay_or_its_topic_goes(
    cluster: RunningCluster, disks: list[Path]
) -> None:
    with connect(cluster) as connection:
        throttle(connection, 1_000)
        stays, goes = new_topic(connection), new_topic(connection)
        for topic in (stays, goes):
            for _ in range(5):
                assert produce(connection, topic, batch_of(b"x" * 20_000)).error_code == ErrorCode.NONE
            source = place(connection, topic.name)
            assert alter(connection, elsewhere(cluster, disks, source), topic.name, 0) == [ErrorCode.NONE]
            if topic is stays:
                assert alter(connection, source, topic.name, 0) == [ErrorCode.NONE]
                until(lambda at=source: has_moved(connection, stays.name, at), "the move to be given up", WAIT_S)
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.delete_topics([goes.name])[goes.name].result(WAIT_S)
        until(lambda: not places(connection, goes.name), "the topic to be gone", WAIT_S)
        until(lambda: not any(list(disk.glob("*/*-future")) for disk in disks), "no future log", WAIT_S)
        assert values(cluster, stays.name, 5) == [b"x" * 20_000] * 5


def test_what_cannot_be_is_refused(cluster: RunningCluster, disks: list[Path]) -> None:
    with connect(cluster) as connection:
        topic = new_topic(connection).name
        here = place(connection, topic)
        assert alter(connection, "/nowhere", topic, 0) == [ErrorCode.LOG_DIR_NOT_FOUND]
        assert alter(connection, here, topic, 0, 7) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert alter(connection, here, "missing", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert alter(connection, here, "x" * 230, 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert connection.call(AlterReplicaLogDirsRequest(dirs=[])).results == []


def test_a_replica_that_comes_later_begins_where_it_was_told(cluster: RunningCluster, disks: list[Path]) -> None:
    with connect(cluster) as connection:
        for number, disk in enumerate([disks[0], disks[0], disks[0]]):
            wanted = disk / "broker-1"
            assert alter(connection, wanted, f"later-{number}", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            new_topic(connection, name=f"later-{number}")
            until(lambda at=number: places(connection, f"later-{at}"), "its log", WAIT_S)
            assert place(connection, f"later-{number}") == wanted
