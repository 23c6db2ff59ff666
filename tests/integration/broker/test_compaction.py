"""A running broker compacts: readers see the newest record of each key, and a kill loses nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.processes import BrokerSettings, ControllerSettings
from tests.support.broker import QUICK, running_cluster
from tests.support.broker_process import PartProcess
from tests.support.ports import free_port

TIMEOUT_S = 30.0
CLEANING = {
    **QUICK,
    "log.cleaner.backoff.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "log.flush.scheduler.interval.ms": "50",
}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "segment.ms": "100",
}
TOPIC = "latest"

Value = bytes | None


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def create(bootstrap_servers: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=COMPACT | configs)])[TOPIC].result(TIMEOUT_S)


class Writer:
    """Writes records, and knows what is newest."""

    def __init__(self, bootstrap_servers: str, codec: str = "none") -> None:
        self.newest: dict[bytes, Value] = {}
        self.unknown: dict[bytes, list[Value]] = {}
        """Values that may or may not have been written since."""
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "compression.type": codec,
                "linger.ms": 5,
                "enable.idempotence": True,
                "message.timeout.ms": 20_000,
            }
        )

    def write(self, rows: list[tuple[bytes, Value]]) -> None:
        for key, value in rows:

            def delivered(error: object, _: object, key: bytes = key, value: Value = value) -> None:
                assert error is None, error
                self.newest[key] = value

            self._producer.produce(TOPIC, value, key=key, on_delivery=delivered)
        assert self._producer.flush(TIMEOUT_S) == 0


def read_all(bootstrap_servers: str) -> list[tuple[int, bytes, Value]]:
    """Every record from the beginning to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[tuple[int, bytes, Value]] = []
    try:
        while True:
            for message in consumer.consume(1_000, 0.2):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return found
                found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def newest_of(records: list[tuple[int, bytes, Value]]) -> dict[bytes, Value]:
    return {key: value for _, key, value in records}


def log_bytes(folder: Path) -> int:
    total = 0
    for path in (folder / f"{TOPIC}-0").glob("*.log"):
        # Compaction, or what the tier has, may just take it away.
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def metric(port: int, name: str) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_readers_find_the_newest_record_of_each_key(tmp_path: Path, codec: str) -> None:
    port = free_port()
    with running_cluster(tmp_path, properties=CLEANING | {"metrics.port": str(port)}) as cluster:
        servers = cluster.bootstrap_servers
        create(servers, **{"delete.retention.ms": "1"})
        writer = Writer(servers, codec)
        for round_ in range(8):
            writer.write([(b"k%d" % n, b"%d-%d " % (round_, n) * 20) for n in range(500)])
            time.sleep(0.12)
        writer.write([(b"k%d" % n, None) for n in range(100)])
        time.sleep(0.12)
        writer.write([(b"end", b"1")])

        def is_clean() -> bool:
            writer.write([(b"end", b"1")])
            return len(read_all(servers)) < 600

        eventually(is_clean, "compacted")
        records = read_all(servers)
        left = {key: value for key, value in newest_of(records).items() if value is not None}
        assert left == {key: value for key, value in writer.newest.items() if value is not None}
        offsets = [offset for offset, _, _ in records]
        assert offsets == sorted(set(offsets)) and offsets[0] > 0
        assert metric(port, "appliance_log_cleaner_rounds_total") >= 1
        assert metric(port, "appliance_log_cleaner_read_bytes_total") > 0
        assert metric(port, "kafka_log_logcleanermanager_uncleanable_partitions_count") == 0
        checkpoint = cluster.data_dir(1) / "cleaner-offset-checkpoint"
        eventually(lambda: checkpoint.exists() and f"{TOPIC} 0 " in checkpoint.read_text(), "the checkpoint")


class KillableCluster:
    """A controller and a broker in processes of their own."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self.folder = folder
        self._properties = properties
        self._store = (folder / "object-store").as_uri()
        (folder / "object-store").mkdir()
        self.controller = PartProcess(ControllerSettings(100, "127.0.0.1", 0, self._store, properties), folder / "log")
        self.controller.wait_until_ready()
        self.port = 0
        self.start_broker()

    def start_broker(self) -> None:
        settings = BrokerSettings(
            broker_id=1,
            host="127.0.0.1",
            port=self.port,
            advertised_host="127.0.0.1",
            data_dir=self.data_dir,
            controllers=[self.controller.address],
            object_store=self._store,
            properties=self._properties,
        )
        self.broker = PartProcess(settings, self.folder / "log")
        self.broker.wait_until_ready()
        self.port = self.broker.port

    @property
    def data_dir(self) -> Path:
        return self.folder / "broker-1"

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[KillableCluster]:
    # So slow that a kill finds it at work.
    running = KillableCluster(tmp_path, CLEANING | {"log.cleaner.io.max.bytes.per.second": "1500000"})
    yield running
    running.broker.stop()
    running.controller.stop()


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def test_a_kill_in_the_middle_of_cleaning_loses_nothing(killable: KillableCluster) -> None:
    create(killable.servers)
    writer = Writer(killable.servers)
    folder = killable.data_dir / f"{TOPIC}-0"
    for kill in range(3):
        for round_ in range(3):
            writer.write([(b"k%d" % n, b"%d-%d-%d " % (kill, round_, n) * 60) for n in range(1_000)])
            time.sleep(0.12)
        writer.write([(b"roll", b"%d" % kill)])
        eventually(lambda: bool(list(folder.glob("*.cleaned"))), "cleaning has begun")
        helpers = children_of(killable.broker.process.pid)
        assert helpers
        killable.broker.kill()
        eventually(lambda pids=helpers: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the helper is gone")
        killable.start_broker()
        assert newest_of(read_all(killable.servers)) == writer.newest
    before = log_bytes(killable.data_dir)

    def is_small() -> bool:
        writer.write([(b"roll", b"again")])
        return log_bytes(killable.data_dir) < before / 2

    eventually(is_small, "compacted")
    assert newest_of(read_all(killable.servers)) == writer.newest
    assert json.dumps(sorted(path.name for path in folder.glob("*.swap"))) == "[]"


def test_a_damaged_log_is_told_of_and_the_others_go_on(tmp_path: Path) -> None:
    slow = CLEANING | {"log.cleaner.enable": "false", "metrics.port": "0"}
    with running_cluster(tmp_path, properties=slow) as cluster:
        create(cluster.bootstrap_servers)
        writer = Writer(cluster.bootstrap_servers)
        for round_ in range(4):
            writer.write([(b"k%d" % n, b"%d" % round_ * 50) for n in range(100)])
            time.sleep(0.12)
        folder = cluster.data_dir(1) / f"{TOPIC}-0"
        eventually(lambda: len(list(folder.glob("*.log"))) >= 3, "rolled")
    path = min(folder.glob("*.log"))
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    port = free_port()
    with running_cluster(tmp_path, properties=CLEANING | {"metrics.port": str(port)}) as cluster:
        name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
        eventually(lambda: metric(port, name) == 1, "noticed")
        assert metric(port, "kafka_log_logcleanermanager_uncleanable_bytes") > 0
        document = cli_status(cluster.bootstrap_servers)
        (row,) = document["uncleanable"]
        assert (row["topic"], row["partition"], row["broker_id"]) == (TOPIC, 0, 1)
        assert any("is not compacted on broker 1" in problem for problem in document["problems"])


def cli_status(bootstrap_servers: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "appliance.cli", "status", "-b", bootstrap_servers, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_committed_offsets_are_compacted_and_survive_a_restart(tmp_path: Path) -> None:
    properties = CLEANING | {
        "offsets.topic.num.partitions": "1",
        "log.roll.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with running_cluster(tmp_path, properties=properties) as cluster:
        create(cluster.bootstrap_servers)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "often"})
        # It waits for the coordinator; a commit does not.
        consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        folder = cluster.data_dir(1) / "__consumer_offsets-0"
        committed = 0

        def is_compacted() -> bool:
            nonlocal committed
            for _ in range(100):
                committed += 1
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, committed)], asynchronous=False)
            # Each takes more than a hundred bytes.
            return committed > 300 and sum(path.stat().st_size for path in folder.glob("*.log")) < committed * 50

        eventually(is_compacted, "compacted")
        consumer.close()
    with running_cluster(tmp_path, properties=properties) as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "often"})
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
        consumer.close()
        assert found.offset == committed
