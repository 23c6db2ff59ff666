"""One Apache Kafka node (KRaft, broker and controller in one) on free loopback ports: the peer that we compare with.

As a context manager, or as the fixture `kafka_peer`, one for the whole test run. Everything is at Kafka's defaults but
what a single node cannot do without: replication factor 1 for internal topics, no wait before a group's first
rebalance.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.kafka_jars import java_command
from tests.support.ports import free_port

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20
PORT_TRIES = 3
_PR_SET_PDEATHSIG = 1


class KafkaPeer:
    """A running node. `bootstrap_servers`, `host`, `port` and `pid` are set while it runs."""

    def __init__(
        self,
        *,
        heap: str = "512m",
        properties: Mapping[str, str] | None = None,
        folder: Path | None = None,
        cpus: str = "",
        start_timeout_s: float = START_TIMEOUT_S,
        ports: tuple[int, int] | None = None,
        cluster_id: str = "",
        classes: Path | None = None,
    ) -> None:
        """`folder` is kept when given, else a temporary one is used and removed at the end. `ports` for clients and
        for the other controllers and `cluster_id` are for a node that is one of several. `classes`: plugins' folder.
        """
        self.heap = heap
        self.properties = dict(properties or {})
        self.cpus = cpus
        self.start_timeout_s = start_timeout_s
        self._ports = ports
        self._cluster_id = cluster_id
        self._classes = classes
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="kafka-peer-"))
        self.host, self.port = "127.0.0.1", 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log_text(self) -> str:
        """What the node has written about itself."""
        path = self.folder / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> KafkaPeer:
        for attempt in range(1, PORT_TRIES + 1):
            try:
                self._start_once()
                return self
            except RuntimeError:
                # A free port is only a guess until it is bound.
                if attempt == PORT_TRIES or "Address already in use" not in self.log_text:
                    self.stop()
                    raise
        raise AssertionError("unreachable")

    def _start_once(self) -> None:
        self.port, controller_port = self._ports or (free_port(), free_port())
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "server.properties"
        values = self._settings(controller_port) | self.properties
        settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        if not (self.folder / "data" / "meta.properties").exists():
            made_up = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
            cluster_id = self._cluster_id or made_up
            subprocess.run(
                java_command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=START_TIMEOUT_S,
                check=True,
            )
        command = java_command("kafka.Kafka", str(settings), heap=self.heap)
        if self._classes is not None:
            at = command.index("-cp") + 1
            command[at] = f"{self._classes}:{command[at]}"
        if self.cpus:
            command = ["taskset", "-c", self.cpus, *command]
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._wait_until_it_answers()

    def _settings(self, controller_port: int) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.host}:{controller_port}",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "10",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "10",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self.start_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"Apache Kafka ended with {self._process.returncode}: {self.log_text[-2000:]}")
            if brokers_in_metadata(self.host, self.port):
                return
            time.sleep(0.05)
        raise RuntimeError(f"Apache Kafka did not answer within {self.start_timeout_s} s: {self.log_text[-2000:]}")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back on another port with its data."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()
        self._process = None

    def __enter__(self) -> KafkaPeer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def die_with_parent() -> None:
    """Run between fork and exec: a killed test run leaves no server behind (on Linux)."""
    if os.uname().sysname == "Linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def brokers_in_metadata(host: str, port: int) -> int:
    """How many brokers a Metadata v1 answer names; 0 when nobody answers. By hand, so that it needs no client."""
    client_id = b"probe"
    body = struct.pack(">hhih", 3, 1, 1, len(client_id)) + client_id + struct.pack(">i", 0)
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return 0
    return struct.unpack(">iii", answer)[2] if len(answer) == 12 else 0
