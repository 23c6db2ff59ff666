"""A cluster whose controller and brokers are processes of their own, to be killed, paused and started again.

with ReplicatedCluster(tmp_path) as cluster:
    cluster.create("orders", partitions=2, **{"min.insync.replicas": "2"})
    cluster.kill(cluster.leader("orders"))
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base.processes import BrokerSettings, ControllerSettings
from tests.support.broker import QUICK
from tests.support.broker_process import PartProcess
from tests.support.ports import free_port

WAIT_S = 30.0
LOOK_TIMEOUT_S = 5.0
T = TypeVar("T")


class ReplicatedCluster:
    """One controller, brokers 1…n with a rack each (`rack-1`, …)."""

    def __init__(
        self, folder: Path, brokers: int = 3, properties: Mapping[str, str] | None = None, store: str = ""
    ) -> None:
        self.folder = folder
        self.properties = {**QUICK, "replica.lag.time.max.ms": "3000", **(properties or {})}
        if not store:
            (folder / "object-store").mkdir()
        self.store = store or (folder / "object-store").as_uri()
        controller = ControllerSettings(100, "127.0.0.1", free_port(), self.store, dict(self.properties))
        self.controller = PartProcess(controller, folder / "controller.log")
        self.controller.wait_until_ready()
        self.brokers: dict[int, PartProcess] = {}
        self.ports = {broker_id: free_port() for broker_id in range(1, brokers + 1)}
        self._paused: set[int] = set()
        for broker_id in self.ports:
            self.begin(broker_id)
        for broker in self.brokers.values():
            broker.wait_until_ready()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        self._observer = self.admin

    def __enter__(self) -> ReplicatedCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for part in [*self.brokers.values(), self.controller]:
            if part.process.poll() is None:
                part.kill()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def begin(self, broker_id: int) -> PartProcess:
        """Start a broker, at its own port, without waiting for it."""
        settings = BrokerSettings(
            broker_id=broker_id,
            host="127.0.0.1",
            port=self.ports[broker_id],
            advertised_host="127.0.0.1",
            data_dir=self.folder / f"broker-{broker_id}",
            controllers=[self.controller.address],
            object_store=self.store,
            node=f"rack-{broker_id}",
            properties=self.properties,
        )
        broker = self.brokers[broker_id] = PartProcess(settings, self.folder / f"broker-{broker_id}.log")
        return broker

    def start(self, broker_id: int) -> None:
        self.begin(broker_id).wait_until_ready()

    def kill(self, broker_id: int) -> None:
        self.brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        self._paused.add(broker_id)
        self.brokers[broker_id].process.send_signal(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        self.brokers[broker_id].process.send_signal(signal.SIGCONT)
        self._paused.discard(broker_id)

    def create(self, topic: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        made = self.admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])
        made[topic].result(WAIT_S)

    def state(self, topic: str, partition: int = 0) -> Any:
        """Leader, replicas and ISR as a broker's Metadata has them; None while nobody answers."""
        try:
            return self._observer.list_topics(topic, timeout=LOOK_TIMEOUT_S).topics[topic].partitions.get(partition)
        except KafkaException:
            # librdkafka goes on asking the broker that it asked last, also one that stands still: begin anew elsewhere.
            awake = [f"127.0.0.1:{port}" for broker_id, port in self.ports.items() if broker_id not in self._paused]
            self._observer = AdminClient({"bootstrap.servers": ",".join(awake), "log_level": 2})
            return None

    def leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """The partition's leader, once there is one that is another than that."""

        def look() -> int:
            state = self.state(topic, partition)
            return state.leader if state is not None and state.leader not in (-1, other_than) else 0

        return until(look, f"a leader of {topic}-{partition}, not {other_than}")

    def wait_for_leader(self, topic: str, broker_id: int, partition: int = 0) -> None:
        """Until this very one leads: of several brokers that die, one may lead for a moment before it does."""
        until(
            lambda: (state := self.state(topic, partition)) is not None and state.leader == broker_id,
            f"broker {broker_id} to lead {topic}-{partition}",
        )

    def wait_for_isr(self, topic: str, *members: int, partition: int = 0) -> None:
        until(
            lambda: (state := self.state(topic, partition)) is not None and sorted(state.isrs) == sorted(members),
            f"the ISR of {topic}-{partition} to be {members}, it is {self.state(topic, partition)}",
        )

    def log(self, broker_id: int) -> str:
        return (self.folder / f"broker-{broker_id}.log").read_text()


def until(look: Callable[[], T], what: str, timeout_s: float = WAIT_S) -> T:
    """The first true value that `look` gives."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.05)
    return found
