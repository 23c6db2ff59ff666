"""Three nodes of each that are compared, on one machine: what replication costs, and what a death costs.

Topics have three replicas and `min.insync.replicas` 2. Ours are two controllers and three brokers, each a process of
its own, as `appliance up --brokers 3 --runtime local` starts them, but without the supervisor: nobody restarts what
the benchmark kills. Apache Kafka's are three KRaft nodes, each broker and controller.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.benchmarks.servers import BenchmarkedServer, cpu_seconds_of, memory_bytes_of
from tests.support.broker_process import PartProcess
from tests.support.fault_proxy import FaultProxy
from tests.support.kafka_peer import KafkaPeer, brokers_in_metadata
from tests.support.moto_server import CREDENTIALS, MotoServer
from tests.support.ports import free_port

NODES = (1, 2, 3)
HOST = "127.0.0.1"
BUCKET = "failover"
WAIT_S = 180.0
FAST_SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


class ThreeNodes(BenchmarkedServer):
    """`host` and `port` are those of the leader of the topic that was created last."""

    replication_factor = 3
    ports: dict[int, int]

    @abstractmethod
    def kill(self, node: int) -> None: ...

    @abstractmethod
    def start_node(self, node: int) -> None:
        """Bring a killed one back on its old port; it may take a while until it serves."""

    @abstractmethod
    def pid_of(self, node: int) -> int: ...

    @abstractmethod
    def pids(self) -> list[int]: ...

    @property
    def pid(self) -> int:
        return self.pid_of(1)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, self.pids()))

    def memory_bytes(self) -> int:
        return sum(map(memory_bytes_of, self.pids()))

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        topic_id = super().create_topic(name, partitions, {"min.insync.replicas": "2", **(config or {})})
        self.wait_for_isr(name)
        self.port = self.ports[self.rows_of(name)[0].leader_id]
        return topic_id

    def rows_of(self, topic: str, node: int | None = None) -> list[Any]:
        """A topic's partitions as one of the nodes that answer has them."""
        for candidate in self.ports if node is None else (node,):
            try:
                with Connection(HOST, self.ports[candidate], timeout_ms=5_000) as connection:
                    answer = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
                    return sorted(answer.topics[0].partitions, key=lambda row: row.partition_index)
            except (ConnectionLost, CallTimedOut):
                continue
        return []

    def wait_for_isr(self, topic: str, nodes: int = 3) -> None:
        """Until all replicas of all partitions are in sync, as every node has it."""
        deadline = time.monotonic() + WAIT_S
        for node in self.ports:
            while not (rows := self.rows_of(topic, node)) or any(len(row.isr_nodes) < nodes for row in rows):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name}: {topic} is not in sync after {WAIT_S:.0f} s")
                time.sleep(0.1)

    def __enter__(self) -> ThreeNodes:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class ApplianceNodes(ThreeNodes):
    """Args:
    store_delay_ms: added to each call of the object store, which then is an S3 server behind a proxy.
    """

    name = "appliance"

    def __init__(
        self, folder: Path, properties: Mapping[str, str] | None = None, *, store_delay_ms: int | None = None
    ) -> None:
        self.folder = folder
        self.properties = dict(properties or {})
        self.store_delay_ms = store_delay_ms
        self.store_away = False
        self.ports = {}
        self.brokers: dict[int, PartProcess] = {}
        self.controllers: dict[int, PartProcess] = {}
        self._controller_ports: dict[int, int] = {}
        self._store = ""
        self._ending = ExitStack()

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._store = self._open_store()
        self._controller_ports = {100 + number: free_port() for number in (1, 2)}
        for controller_id in self._controller_ports:
            self.start_controller(controller_id)
            if controller_id == min(self._controller_ports):
                # The other one stands by.
                self.controllers[controller_id].wait_until_ready()
        self.ports = {node: free_port() for node in NODES}
        for node in NODES:
            self.start_node(node)
        for broker in self.brokers.values():
            broker.wait_until_ready()

    def _open_store(self) -> str:
        if self.store_delay_ms is None:
            (self.folder / "object-store").mkdir()
            return (self.folder / "object-store").as_uri()
        moto = self._ending.enter_context(MotoServer())
        proxy = self._ending.enter_context(FaultProxy(moto.port))
        os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=proxy.endpoint_url)

        import boto3

        boto3.client("s3").create_bucket(Bucket=BUCKET)

        def late(method: str, path: str) -> str | None:
            time.sleep((self.store_delay_ms or 0) / 1_000)
            return "503" if self.store_away else None

        proxy.rule = late
        return f"s3://{BUCKET}/cluster"

    def start_controller(self, controller_id: int) -> None:
        settings = ControllerSettings(
            controller_id, HOST, self._controller_ports[controller_id], self._store, dict(self.properties)
        )
        self.controllers[controller_id] = PartProcess(settings, self.folder / f"controller-{controller_id}.log")

    def active_controller(self) -> int:
        """The one that a broker's heartbeats go to."""
        from appliance.wire.messages.internal_metadata import ControllerStatusRequest

        for controller_id, port in self._controller_ports.items():
            try:
                with Connection(HOST, port, timeout_ms=2_000) as connection:
                    if connection.call(ControllerStatusRequest()).active:
                        return controller_id
            except (ConnectionLost, CallTimedOut):
                continue
        raise RuntimeError("no controller is active")

    def start_node(self, node: int) -> None:
        settings = BrokerSettings(
            broker_id=node,
            host=HOST,
            port=self.ports[node],
            advertised_host=HOST,
            data_dir=self.folder / f"broker-{node}",
            controllers=[f"{HOST}:{port}" for port in self._controller_ports.values()],
            object_store=self._store,
            node=f"rack-{node}",
            properties=self.properties,
        )
        self.brokers[node] = PartProcess(settings, self.folder / f"broker-{node}.log")

    def kill(self, node: int) -> None:
        self.brokers[node].kill()

    def kill_controller(self, controller_id: int) -> None:
        self.controllers[controller_id].kill()

    def pid_of(self, node: int) -> int:
        return self.brokers[node].process.pid

    def pids(self) -> list[int]:
        return [part.process.pid for part in (*self.brokers.values(), *self.controllers.values())]

    def stop(self) -> None:
        for part in (*self.brokers.values(), *self.controllers.values()):
            if part.process.poll() is None:
                part.kill()
        self._ending.close()


class KafkaNodes(ThreeNodes):
    """1 GiB of heap each; else Kafka's defaults but for `properties`."""

    name = "Apache Kafka 4.3.0"

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.ports = {node: free_port() for node in NODES}
        voting = {node: free_port() for node in NODES}
        self._nodes: dict[int, KafkaPeer] = {}
        self._threads = ThreadPoolExecutor(len(NODES))
        for node in NODES:
            values = {
                "node.id": str(node),
                "controller.quorum.voters": ",".join(f"{other}@{HOST}:{voting[other]}" for other in NODES),
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                **(properties or {}),
            }
            self._nodes[node] = KafkaPeer(
                heap="1g",
                properties=values,
                folder=folder / f"kafka-{node}",
                ports=(self.ports[node], voting[node]),
                cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
            )

    def start(self) -> None:
        # Nobody answers before a majority is there. Each process ends with the thread that started it, so they stay.
        list(self._threads.map(lambda peer: peer.start(), self._nodes.values()))
        deadline = time.monotonic() + WAIT_S
        while any(brokers_in_metadata(HOST, port) < len(NODES) for port in self.ports.values()):
            if time.monotonic() > deadline:
                raise TimeoutError("the three nodes do not know each other")
            time.sleep(0.1)

    def kill(self, node: int) -> None:
        self._nodes[node].kill()

    def start_node(self, node: int) -> None:
        self._nodes[node].start()

    def pid_of(self, node: int) -> int:
        return self._nodes[node].pid

    def pids(self) -> list[int]:
        return [peer.pid for peer in self._nodes.values()]

    def stop(self) -> None:
        for peer in self._nodes.values():
            peer.stop()
        self._threads.shutdown()
