"""A thousand partitions on a broker that may hold fewer files than that: all take records, also after a kill."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.base.ids import TopicPartition
from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.client.connection import Connection
from appliance.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.benchmarks.scale_client import create, ends_of, metadata_ms, names_of, produce_to_all
from tests.benchmarks.servers import open_files_of
from tests.support.broker import QUICK
from tests.support.broker_process import PartProcess

PARTITIONS, OPEN_FILES_MAX = 1_000, 400
DEADLINE_S = 60
FETCH_VERSION = 12

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit of another process is set with prlimit")


class Cluster:
    """A controller and one broker as processes; the broker's limit of open files is small."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = (folder / "object-store").as_uri()
        (folder / "object-store").mkdir()
        self.controller = PartProcess(ControllerSettings(100, "127.0.0.1", 0, self._store, QUICK), folder / "log")
        self.controller.wait_until_ready()
        self.start_broker()

    def start_broker(self) -> None:
        settings = BrokerSettings(
            broker_id=1,
            host="127.0.0.1",
            port=0,
            advertised_host="127.0.0.1",
            data_dir=self._folder / "broker-1",
            controllers=[self.controller.address],
            object_store=self._store,
            properties=QUICK,
        )
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        # What is started now inherits it.
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_MAX, limits[1]))
        try:
            self.broker = PartProcess(settings, self._folder / "log")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.broker.wait_until_ready()

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.broker.port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.broker.stop()
    running.controller.stop()


def produce_everywhere(cluster: Cluster, partitions: list[TopicPartition]) -> None:
    produce_to_all(cluster.address, partitions, time.monotonic() + DEADLINE_S)


def bytes_in(connection: Connection, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """What one fetch from the beginning brings of each."""
    topics: dict[str, list[FetchPartition]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(
            FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=10_000)
        )
    found: dict[TopicPartition, int] = {}
    for topic, wanted in topics.items():
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=wanted)], max_bytes=100_000_000)
        for answered in connection.call(request, FETCH_VERSION).responses:
            for row in answered.partitions:
                assert row.error_code == 0
                found[TopicPartition(answered.topic, row.partition_index)] = len(row.records or b"")
    return found


def test_more_partitions_than_files_take_records_and_give_them_back_also_after_a_kill(cluster: Cluster) -> None:
    partitions = names_of(PARTITIONS)
    with Connection(*cluster.address()) as connection:
        create(connection, partitions)
        produce_everywhere(cluster, partitions)
        produce_everywhere(cluster, partitions)
        sizes = bytes_in(connection, partitions)
        assert len(sizes) == PARTITIONS and min(sizes.values()) > 0 and len(set(sizes.values())) == 1
    assert metadata_ms(cluster.address())[1] == PARTITIONS
    assert open_files_of(cluster.broker.process.pid) <= OPEN_FILES_MAX
    cluster.broker.kill()
    cluster.start_broker()
    produce_everywhere(cluster, partitions)
    with Connection(*cluster.address()) as connection:
        assert set(ends_of(connection, partitions).values()) == {3}
        assert set(bytes_in(connection, partitions).values()) == {sizes[partitions[0]] // 2 * 3}
    assert open_files_of(cluster.broker.process.pid) <= OPEN_FILES_MAX
