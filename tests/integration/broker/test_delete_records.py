"""DeleteRecords: what is deleted stays deleted, in the log and in the object store; answers are Apache Kafka's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.broker_actors import broker_process
from appliance.client.connection import Connection
from appliance.log.checkpoints import LOG_START_FILE
from appliance.tiering.directory import DirectoryStore
from appliance.tiering.manifest import Manifest, parse_manifest
from appliance.tiering.names import manifest_name
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from appliance.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.support.broker import QUICK, RunningCluster, running_cluster
from tests.support.broker_process import PartProcess
from tests.support.fault_store import FaultStore, away
from tests.support.kafka_peer import KafkaPeer
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, values_of
from tests.support.running import wait_for

RECORDS = 20
WAIT_S = 20


def filled(connection: Connection, batches: int = RECORDS // 2, **configs: str) -> CreatableTopicResult:
    """Two records a batch; the name is unlike any other, on any server."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    topic = new_topic(connection, configs=named, name=f"deleted-{time.time_ns()}")
    for _ in range(batches):
        batch = batch_of(b"x", b"y", key=b"k")
        wait_for(lambda batch=batch: produce(connection, topic, batch).error_code == 0, WAIT_S)
    return topic


def delete(
    connection: Connection, *wanted: tuple[str, int, int], version: int = 2, timeout_ms: int = 5_000
) -> list[tuple[str, int, int, int]]:
    """(topic, partition, low watermark, error code) for each (topic, partition, offset)."""
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)])
        for name, partition, offset in wanted
    ]
    response = connection.call(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), version)
    return sorted(
        (topic.name, one.partition_index, one.low_watermark, one.error_code)
        for topic in response.topics
        for one in topic.partitions
    )


# Beside Apache Kafka


def told(connection: Connection) -> list[object]:
    """What a server answers to one and the same list of questions."""
    answers: list[object] = []

    def ask(topic: CreatableTopicResult, *places: tuple[int, int], **options: int) -> None:
        got = delete(connection, *((topic.name, partition, offset) for partition, offset in places), **options)
        answers.append([row[1:] for row in got])

    topic = filled(connection)
    for offset in (0, -2, -100, 3, 2, RECORDS + 1, RECORDS, -1, 5, 10**15):
        ask(topic, (0, offset))
        answers.append(list_offset(connection, topic, -2, version=7).offset)
    answers += [fetch(connection, topic, 3).error_code, fetch(connection, topic, RECORDS).error_code]
    for version in range(3):
        ask(filled(connection, 2), (0, 1), version=version)
    for policy in ("compact", "delete", "compact,delete", ""):
        topic = filled(connection, 2, cleanup_policy=policy)
        for offset in (0, 1, -1, 50):
            ask(topic, (0, offset))
    topic = filled(connection, 3)
    ask(topic, (7, 1), (0, 1), (-1, 0))
    ask(topic, (0, 2), (0, 3))
    ask(filled(connection, 3, remote_storage_enable="false"), (0, 4), timeout_ms=0)
    answers.append(delete(connection))
    answers.append(delete(connection, ("nobody", 0, 1), ("no/name", 0, 1)))
    return answers


@pytest.mark.java
def test_answers_are_apache_kafkas(connection: Connection, kafka_peer: KafkaPeer) -> None:
    with Connection(kafka_peer.host, kafka_peer.port, client_id="test", timeout_ms=10_000) as peer:
        assert told(connection) == told(peer)


# On the disk


def test_deleted_records_stay_deleted_when_the_broker_is_killed(tmp_path: Path) -> None:
    store = tmp_path / "object-store"
    store.mkdir()
    # Checkpoints of its own accord would come too late.
    properties = {**QUICK, "replica.high.watermark.checkpoint.interval.ms": "3600000"}
    controller = PartProcess(ControllerSettings(100, "127.0.0.1", 0, store.as_uri(), properties), tmp_path / "log")
    controller.wait_until_ready()

    def start(port: int) -> PartProcess:
        settings = BrokerSettings(
            broker_id=1,
            host="127.0.0.1",
            port=port,
            advertised_host="127.0.0.1",
            data_dir=tmp_path / "data",
            controllers=[controller.address],
            object_store=store.as_uri(),
            properties=properties,
        )
        broker = PartProcess(settings, tmp_path / "log")
        broker.wait_until_ready()
        return broker

    broker = start(0)
    try:
        with Connection("127.0.0.1", broker.port, timeout_ms=10_000) as connection:
            plain = filled(connection, remote_storage_enable="false")
            tiered = filled(connection)
            for topic in (plain, tiered):
                assert delete(connection, (topic.name, 0, 7)) == [(topic.name, 0, 7, 0)]
        broker.kill()
        broker = start(broker.port)
        with Connection("127.0.0.1", broker.port, timeout_ms=10_000) as connection:
            for topic in (plain, tiered):
                wait_for(lambda topic=topic: list_offset(connection, topic, -2).error_code == 0, WAIT_S)
                assert list_offset(connection, topic, -2).offset == 7
                assert fetch(connection, topic, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                assert len(values_of(fetch(connection, topic, 7).records)) >= RECORDS - 7
    finally:
        broker.stop()
        controller.stop()


def test_segments_below_the_start_go(tmp_path: Path) -> None:
    properties = {"log.retention.check.interval.ms": "100", "log.segment.delete.delay.ms": "0"}
    with (
        running_cluster(tmp_path, properties=properties) as cluster,
        Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection,
    ):
        configs = {"remote.storage.enable": "false", "segment.bytes": "1048576", "retention.ms": "-1"}
        for policy in ("delete", ""):
            topic = new_topic(connection, configs={**configs, "cleanup.policy": policy})
            for _ in range(8):
                assert produce(connection, topic, batch_of(bytes(500_000))).error_code == 0
            folder = cluster.data_dir(1) / f"{topic.name}-0"
            assert len(list(folder.glob("*.log"))) == 4
            assert delete(connection, (topic.name, 0, 5)) == [(topic.name, 0, 5, 0)]
            wait_for(lambda folder=folder: not (folder / f"{2:020}.log").exists(), WAIT_S)
            assert sorted(path.name for path in folder.glob("*.log")) == [f"{4:020}.log", f"{6:020}.log"]
            assert delete(connection, (topic.name, 0, -1)) == [(topic.name, 0, 8, 0)]
            wait_for(lambda folder=folder: not (folder / f"{6:020}.log").exists(), WAIT_S)
            assert produce(connection, topic, batch_of(b"next")).base_offset == 8


def test_an_answer_says_that_the_disk_refused(
    cluster: RunningCluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(connection, remote_storage_enable="false")

    def refuse(*arguments: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("appliance.log.directory_checkpoints.write_offsets", refuse)
    assert delete(connection, (topic.name, 0, 7)) == [(topic.name, 0, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
    monkeypatch.undo()
    assert delete(connection, (topic.name, 0, 7)) == [(topic.name, 0, 7, 0)]
    assert f"{topic.name} 0 7" in (cluster.data_dir(1) / LOG_START_FILE).read_text()


def test_the_answer_waits_for_the_followers_and_their_logs_begin_there_too(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=2) as cluster:
        connections = {
            broker_id: Connection("127.0.0.1", broker.port, timeout_ms=10_000)
            for broker_id, broker in cluster.brokers.items()
        }
        configs = [CreatableTopicConfig(name="remote.storage.enable", value="false")]
        topic = CreatableTopic(name="pair", num_partitions=1, replication_factor=2, configs=configs)
        (created,) = connections[1].call(CreateTopicsRequest(topics=[topic])).topics
        assert created.error_code == 0, created.error_message
        leader = wait_for(lambda: leading(connections, created), WAIT_S)
        for _ in range(10):
            assert produce(connections[leader], created, batch_of(b"x", b"y"), acks=-1).error_code == 0
        assert delete(connections[leader], ("pair", 0, 7), timeout_ms=WAIT_S * 1_000) == [("pair", 0, 7, 0)]
        for connection in connections.values():
            connection.close()
        cluster.brokers.pop(leader).stop()
        (left,) = cluster.brokers.values()
        with Connection("127.0.0.1", left.port, timeout_ms=10_000) as connection:
            wait_for(lambda: list_offset(connection, created, -2).error_code == 0, WAIT_S)
            assert list_offset(connection, created, -2).offset == 7


def leading(connections: dict[int, Connection], topic: CreatableTopicResult) -> int:
    """The broker that leads the topic's partition; 0 while none does."""
    return next((one for one, each in connections.items() if list_offset(each, topic, -1).error_code == 0), 0)


# In the object store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultStore:
    faulty = FaultStore(DirectoryStore(tmp_path / "object-store"))
    monkeypatch.setattr(broker_process, "open_store", lambda url, config: faulty)
    return faulty


@pytest.fixture
def tiering(store: FaultStore, tmp_path: Path) -> Iterator[RunningCluster]:
    properties = {"tiering.task.interval.ms": "50", "log.segment.bytes": "1048576"}
    with running_cluster(tmp_path, properties=properties) as running:
        yield running
        store.rule = lambda operation, name: None


def manifest_of(store: FaultStore, topic: CreatableTopicResult) -> Manifest:
    return parse_manifest(store.inner.get(manifest_name(topic.topic_id, 0)).data)


def test_the_manifest_is_changed_before_the_log_and_the_answer(store: FaultStore, tiering: RunningCluster) -> None:
    with Connection("127.0.0.1", tiering.brokers[1].port, timeout_ms=20_000) as connection:
        topic = new_topic(connection, configs={"local.retention.bytes": "1", "retention.ms": "-1"})
        for _ in range(12):
            assert produce(connection, topic, batch_of(bytes(400_000))).error_code == 0
        wait_for(lambda: list_offset(connection, topic, -4).offset >= 6, WAIT_S)
        store.rule = away()
        assert delete(connection, (topic.name, 0, 3), timeout_ms=300) == [
            (topic.name, 0, -1, ErrorCode.REQUEST_TIMED_OUT)
        ]
        assert list_offset(connection, topic, -2).offset == 0, "the manifest still lists what was to be deleted"
        store.rule = lambda operation, name: None
        assert delete(connection, (topic.name, 0, 3), timeout_ms=WAIT_S * 1_000) == [(topic.name, 0, 3, 0)]
        assert manifest_of(store, topic).start_offset == 3
        assert list_offset(connection, topic, -2).offset == 3
        assert fetch(connection, topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        end = list_offset(connection, topic, -1).offset
        assert delete(connection, (topic.name, 0, -1), timeout_ms=WAIT_S * 1_000) == [(topic.name, 0, end, 0)]
        manifest = manifest_of(store, topic)
        assert (manifest.start_offset, manifest.end_offset, manifest.items) == (end, end, ())


def test_a_topic_that_is_not_tiered_needs_no_object_store(store: FaultStore, tiering: RunningCluster) -> None:
    with Connection("127.0.0.1", tiering.brokers[1].port, timeout_ms=20_000) as connection:
        topic = filled(connection, remote_storage_enable="false")
        store.rule = away()
        assert delete(connection, (topic.name, 0, 4)) == [(topic.name, 0, 4, 0)]
