"""The two that are compared, side by side on one machine: Apache Kafka, and one broker of ours as a user starts it."""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.kafka_peer import KafkaPeer, die_with_parent
from tests.support.ports import free_port
from tests.support.repo import REPO

READY_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
TOPIC_TIMEOUT_S = 90
NOT_THERE_YET = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(pid: int) -> float:
    """User and system time of a process and of its children that have ended; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def memory_bytes_of(pid: int) -> int:
    """Proportional share of memory, so that pages which processes share count once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def open_files_of(pid: int) -> int:
    """File descriptors that a process holds; 0 when it is gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def tree_of(pid: int) -> list[int]:
    """A process and everything that descends from it."""
    found, queue = [], [pid]
    while queue:
        parent = queue.pop()
        found.append(parent)
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            queue.extend(map(int, task.read_text().split()))
    return found


class BenchmarkedServer(ABC):
    """A running server, what it costs, and its topics."""

    name: str
    host = "127.0.0.1"
    port: int
    replication_factor = 1

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        """Of all its processes: broker, controller and whatever else it starts by default."""
        return sum(map(cpu_seconds_of, tree_of(self.pid)))

    def memory_bytes(self) -> int:
        return sum(map(memory_bytes_of, tree_of(self.pid)))

    def open_files(self) -> int:
        return sum(map(open_files_of, tree_of(self.pid)))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """With the server's defaults where `config` says nothing; returns the topic's id as 32 hex digits."""
        admin = self._admin()
        topic = NewTopic(name, partitions, self.replication_factor, config=dict(config or {}))
        admin.create_topics([topic])[name].result(TOPIC_TIMEOUT_S)
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        ends = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
        while time.monotonic() < deadline:
            try:
                described = admin.describe_topics(TopicCollection([name]))[name].result(TOPIC_TIMEOUT_S)
                for answer in admin.list_offsets(ends).values():
                    answer.result(TOPIC_TIMEOUT_S)
            except KafkaException as error:  # its creation is on the way from the controller to the leader
                if error.args[0].code() not in NOT_THERE_YET:
                    raise
                time.sleep(0.05)
                continue
            return base64.b64decode(f"{described.topic_id}==").hex()
        raise TimeoutError(f"{self.name}: {name} has no leader")

    def delete_topic(self, name: str) -> None:
        admin = self._admin()  # must outlive its answer
        admin.delete_topics([name])[name].result(TOPIC_TIMEOUT_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})


class Kafka(BenchmarkedServer):
    """One KRaft node with 1 GiB of heap, otherwise at its defaults but for `properties`."""

    name = "Apache Kafka 4.3.0"

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self._peer = KafkaPeer(heap="1g", folder=folder / "kafka", properties=properties)

    def start(self) -> None:
        self._peer.start()
        self.port = self._peer.port

    def stop(self) -> None:
        self._peer.stop()

    @property
    def pid(self) -> int:
        return self._peer.pid


class Appliance(BenchmarkedServer):
    """`appliance up --brokers 1 --runtime local`, otherwise at its defaults but for `properties`."""

    name = "appliance"

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "appliance"
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        command = [str(REPO / ".venv" / "bin" / "appliance"), "up", "--brokers", "1", "--runtime", "local"]
        command += ["--data-dir", str(self.folder / "data"), "--port", "0", "--http-port", "0", "--connect-port", "0"]
        if self._properties:
            config = self.folder / "server.properties"
            config.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
            command += ["--config", str(config)]
        # Numbers are counted and served while they are measured, as Kafka's are.
        environment = {**os.environ, "APPLIANCE_METRICS_PORT": str(free_port())}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        ready = self._wait_for_ready()
        self.host, _, port = ready["bootstrap_servers"].partition(":")
        self.port = int(port)

    def _wait_for_ready(self) -> dict[str, str]:
        assert self._process is not None and self._process.stdout is not None
        deadline, said = time.monotonic() + READY_TIMEOUT_S, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                if selector.select(0.2):
                    said += os.read(self._process.stdout.fileno(), 65536)
                for line in said.splitlines(keepends=True):
                    if line.startswith(b"READY ") and line.endswith(b"\n"):
                        return json.loads(line[6:])
                if self._process.poll() is not None:
                    break
        self.stop()
        raise RuntimeError(f"no READY line from appliance up: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid


def beside_kafka(
    properties: Mapping[str, str],
    *,
    ours_alone: bool,
    ours: Callable[..., BenchmarkedServer] = Appliance,
    kafka: Callable[..., BenchmarkedServer] = Kafka,
) -> list[Callable[[Path], BenchmarkedServer]]:
    """What `SideBySide` takes: Kafka, unless ours runs alone, and ours, both with these configs."""
    kinds = [ours] if ours_alone else [kafka, ours]
    return [partial(kind, properties=properties) for kind in kinds]


class SideBySide:
    """Servers that run beside each other in one temporary folder, which goes when they do."""

    def __init__(self, *kinds: Callable[[Path], BenchmarkedServer], keep: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
        self._keep = keep
        self.servers: list[BenchmarkedServer] = [kind(self._folder) for kind in kinds]

    def __enter__(self) -> list[BenchmarkedServer]:
        try:
            for server in self.servers:
                server.start()
        except BaseException:
            self.__exit__()
            raise
        return self.servers

    def __exit__(self, *error: object) -> None:
        for server in self.servers:
            server.stop()
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)
