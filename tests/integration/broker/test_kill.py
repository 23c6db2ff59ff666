"""A broker that is killed loses nothing that it acknowledged: the page cache survives a process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.errors import KafkaError
from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker import QUICK
from tests.support.broker_process import PartProcess
from tests.support.requests import batch_of, fetch, list_offset, new_topic, produce, values_of

PARTITIONS = 2


class Cluster:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = (folder / "object-store").as_uri()
        (folder / "object-store").mkdir()
        self.controller = PartProcess(ControllerSettings(100, "127.0.0.1", 0, self._store, QUICK), folder / "log")
        self.controller.wait_until_ready()
        self.port = 0
        self.start_broker()

    def start_broker(self) -> None:
        settings = BrokerSettings(
            broker_id=1,
            host="127.0.0.1",
            port=self.port,
            advertised_host="127.0.0.1",
            data_dir=self._folder / "broker-1",
            controllers=[self.controller.address],
            object_store=self._store,
            properties=QUICK,
        )
        self.broker = PartProcess(settings, self._folder / "log")
        self.broker.wait_until_ready()
        self.port = self.broker.port

    def connect(self) -> Connection:
        return Connection("127.0.0.1", self.port, client_id="test", timeout_ms=5_000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.broker.stop()
    running.controller.stop()


class Load:
    """Produces numbered records to one partition, and notes what was acknowledged at which offset."""

    def __init__(self, cluster: Cluster, topic: CreatableTopicResult, partition: int) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.sent: set[bytes] = set()
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()
        self._thread.start()

    def _run(self) -> None:
        number = 0
        with contextlib.suppress(ConnectionLost, CallTimedOut), self._cluster.connect() as connection:
            while not self._stop.is_set():
                values = [b"%d-%d" % (self._partition, number + each) for each in range(5)]
                self.sent.update(values)
                answer = produce(connection, self._topic, batch_of(*values), partition=self._partition)
                assert answer.error_code == 0
                self.acknowledged.update({answer.base_offset + each: value for each, value in enumerate(values)})
                number += 5

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


def all_values(connection: Connection, topic: CreatableTopicResult, partition: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    end = list_offset(connection, topic, -1, partition=partition).offset
    while len(values) < end:
        values += values_of(fetch(connection, topic, len(values), partition=partition).records)
    return values


def wait_until_leading(connection: Connection, topic: CreatableTopicResult) -> None:
    for _ in range(500):
        with contextlib.suppress(KafkaError):
            if list_offset(connection, topic, -1).error_code == 0:
                return
        time.sleep(0.01)
    raise AssertionError("the broker does not lead its partitions again")


def leader_epoch(connection: Connection, topic: CreatableTopicResult) -> int:
    response = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]))
    return response.topics[0].partitions[0].leader_epoch


def test_killed_under_load_it_loses_nothing_acknowledged_and_invents_nothing(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        topic = new_topic(connection, partitions=PARTITIONS)
        epoch = leader_epoch(connection, topic)
    loads = [Load(cluster, topic, partition) for partition in range(PARTITIONS)]
    time.sleep(0.5)
    cluster.broker.kill()
    for load in loads:
        load.stop()
    began = time.monotonic()
    cluster.start_broker()
    with cluster.connect() as connection:
        wait_until_leading(connection, topic)
        assert time.monotonic() - began < 10
        assert leader_epoch(connection, topic) > epoch, "every restart is a new leader epoch"
        for partition, load in enumerate(loads):
            values = all_values(connection, topic, partition)
            assert len(load.acknowledged) > 20, "the load was too small to tell anything"
            for offset, value in load.acknowledged.items():
                assert values[offset] == value
            assert set(values) <= load.sent
            assert len(values) == len(set(values))
        assert produce(connection, topic, batch_of(b"after")).error_code == 0


def test_an_idempotent_producer_goes_on_after_a_kill_without_doubles(cluster: Cluster) -> None:
    def batch(sequence: int) -> bytes:
        return batch_of(b"%d" % sequence, producer_id=4_711, producer_epoch=0, base_sequence=sequence)

    with cluster.connect() as connection:
        topic = new_topic(connection)
        for sequence in range(10):
            assert produce(connection, topic, batch(sequence)).base_offset == sequence
    cluster.broker.kill()
    cluster.start_broker()
    with cluster.connect() as connection:
        wait_until_leading(connection, topic)
        assert produce(connection, topic, batch(9)).base_offset == 9, "the answer may have been lost"
        assert produce(connection, topic, batch(10)).base_offset == 10
        assert all_values(connection, topic, 0) == [b"%d" % number for number in range(11)]


def test_stopped_in_order_it_begins_again_without_recovery(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        topic = new_topic(connection, configs={"segment.bytes": "1048576"})
        for number in range(10):
            produce(connection, topic, batch_of(b"%d" % number))
    cluster.broker.stop()
    cluster.start_broker()
    with cluster.connect() as connection:
        wait_until_leading(connection, topic)
        assert all_values(connection, topic, 0) == [b"%d" % number for number in range(10)]
        assert produce(connection, topic, batch_of(b"next")).base_offset == 10


def test_the_controller_may_restart_while_brokers_serve(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        topic = new_topic(connection)
        produce(connection, topic, batch_of(b"before"))
        cluster.controller.kill()
        assert produce(connection, topic, batch_of(b"meanwhile")).error_code == 0
        settings = ControllerSettings(100, "127.0.0.1", cluster.controller.port, cluster._store, QUICK)
        cluster.controller = PartProcess(settings, cluster._folder / "log")
        cluster.controller.wait_until_ready()
        for _ in range(500):
            answer = produce(connection, topic, batch_of(b"after"))
            if answer.error_code == 0:
                break
            time.sleep(0.01)
        assert answer.error_code == 0
        # The first request may still find the old connection: then nobody knows whether it was done.
        for _ in range(500):
            with contextlib.suppress(AssertionError):
                new_topic(connection)
                break
        else:
            raise AssertionError("no topic could be created after the controller's restart")
