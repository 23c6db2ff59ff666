"""A cluster of processes that suffers by a seed: kills, pauses, cut links, a dead controller.

with ChaosCluster(tmp_path, brokers=3) as cluster:
    suffer(cluster, seed, faults=5)
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.internal_metadata import ControllerStatusRequest
from tests.support.broker import QUICK
from tests.support.broker_process import PartProcess
from tests.support.links import CONTROLLERS, Links
from tests.support.loads import Confluent, KafkaPython, Load, check
from tests.support.ports import free_port
from tests.support.replicated import ReplicatedCluster, until

LEASE_S = 2.5
"""`broker.lease.ms` and its margin: what is away for longer is taken for dead."""
RETRIABLE = (5, 6, 78)
"""LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, OFFSET_NOT_AVAILABLE: ask again, when the metadata is newer."""
PROGRESS_TIMEOUT_S = 120.0
# Many rolls, and flushes all the time.
TOPIC_CONFIGS = {
    "min.insync.replicas": "2",
    "segment.bytes": "1048576",
    "flush.messages": "500",
    "index.interval.bytes": "512",
}
PARTITIONS = 2


class ChaosCluster(ReplicatedCluster):
    """Two controllers, and brokers whose links to each other and to the controllers can be cut."""

    def __init__(
        self, folder: Path, brokers: int = 3, properties: Mapping[str, str] | None = None, *, store: str = ""
    ) -> None:
        self.folder = folder
        self.properties = {**QUICK, "replica.lag.time.max.ms": "3000", **(properties or {})}
        (folder / "object-store").mkdir()
        self.store = store or (folder / "object-store").as_uri()
        self.links = Links()
        self.links.__enter__()
        self.controller_ports = {number: free_port() for number in (1, 2)}
        self.controllers: dict[int, PartProcess] = {}
        for number, port in self.controller_ports.items():
            self.begin_controller(number)
            self.links.open(CONTROLLERS, _address(number, 2), port, ("127.0.0.1", port))
            if number == 1:
                self.controllers[1].wait_until_ready()
        self.brokers = {}
        self._paused = set()
        self.ports = {broker_id: free_port() for broker_id in range(1, brokers + 1)}
        for broker_id in self.ports:
            self.begin(broker_id)
        for broker in self.brokers.values():
            broker.wait_until_ready()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        self._observer = self.admin

    def __enter__(self) -> ChaosCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for part in [*self.brokers.values(), *self.controllers.values()]:
            if part.process.poll() is None:
                part.kill()
        self.links.__exit__(kind, error, at)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{_address(broker_id, 1)}:{port}" for broker_id, port in self.ports.items())

    def begin_controller(self, number: int) -> None:
        settings = ControllerSettings(
            number, "127.0.0.1", self.controller_ports[number], self.store, dict(self.properties)
        )
        self.controllers[number] = PartProcess(settings, self.folder / f"controller-{number}.log")

    def begin(self, broker_id: int) -> PartProcess:
        port = self.ports[broker_id]
        settings = BrokerSettings(
            broker_id=broker_id,
            host="127.0.0.1",
            port=port,
            advertised_host=_address(broker_id, 1),
            data_dir=self.folder / f"broker-{broker_id}",
            controllers=[f"{_address(number, 2)}:{port}" for number, port in self.controller_ports.items()],
            object_store=self.store,
            node=f"rack-{broker_id}",
            properties=self.properties,
        )
        broker = self.brokers[broker_id] = PartProcess(settings, self.folder / f"broker-{broker_id}.log")
        self.links.open(f"broker-{broker_id}", _address(broker_id, 1), port, ("127.0.0.1", port))
        return broker

    def kill(self, broker_id: int) -> None:
        # Before it dies: nobody must find its address served.
        self.links.close(f"broker-{broker_id}")
        super().kill(broker_id)

    def stop(self, broker_id: int) -> None:
        """As an operator does: SIGTERM, and wait."""
        self.brokers[broker_id].stop()
        self.links.close(f"broker-{broker_id}")

    def active_controller(self) -> int:
        """The controller that a broker's question reaches."""

        def ask() -> int:
            for broker_id, port in self.ports.items():
                if self.brokers[broker_id].process.poll() is None:
                    try:
                        with Connection("127.0.0.1", port, timeout_ms=2_000) as connection:
                            status = connection.call(ControllerStatusRequest(), 0)
                    except (ConnectionLost, CallTimedOut):
                        continue
                    if not status.error_code and status.active:
                        return status.controller_id
            return 0

        return until(ask, "an active controller", PROGRESS_TIMEOUT_S)

    def kill_controller(self, number: int) -> None:
        self.controllers[number].kill()

    def wait_for_same_logs(self, topic: str, partitions: int) -> None:
        """All replicas come to hold the same bytes."""

        def same(partition: int) -> bool:
            replicas = self.state(topic, partition).replicas
            return len({self._log_bytes(broker_id, topic, partition) for broker_id in replicas}) == 1

        for partition in range(partitions):
            until(lambda at=partition: same(at), f"all replicas of {topic}-{partition} to be the same")

    def _log_bytes(self, broker_id: int, topic: str, partition: int) -> bytes:
        folder = self.folder / f"broker-{broker_id}" / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))

    def read(self, topic: str, partitions: int) -> list[list[bytes | None]]:
        """Every value of each partition, up to the high watermark."""
        return read_log(self.bootstrap_servers, topic, partitions)


def read_log(bootstrap_servers: str, topic: str, partitions: int) -> list[list[bytes | None]]:
    """Every value of each partition, up to the high watermark."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "check", "enable.auto.commit": False}
    consumer = Consumer({**config, "log_level": 2, "fetch.wait.max.ms": 50})
    logs = []
    try:
        for partition in range(partitions):
            end = end_of(consumer, TopicPartition(topic, partition))
            consumer.assign([TopicPartition(topic, partition, 0)])
            logs.append(_read_to(consumer, end))
        return logs
    finally:
        consumer.close()


def end_of(consumer: Consumer, place: TopicPartition) -> int:
    """The high watermark, once a leader is known that knows it (KIP-207)."""
    ends: list[int] = []

    def ask() -> bool:
        try:
            ends.append(consumer.get_watermark_offsets(place, timeout=20)[1])
        except KafkaException as error:
            if error.args[0].code() not in RETRIABLE:
                raise
        return bool(ends)

    until(ask, "the leader to know its high watermark", PROGRESS_TIMEOUT_S)
    return ends[0]


def _read_to(consumer: Consumer, end: int) -> list[bytes | None]:
    values: list[bytes | None] = []

    def read_more() -> bool:
        for message in consumer.consume(2_000, 0.2):
            assert message.error() is None, message.error()
            assert message.offset() == len(values), f"offset {message.offset()} after {len(values)} records"
            values.append(message.value())
        return len(values) >= end

    until(read_more, f"{end} records", PROGRESS_TIMEOUT_S)
    return values


def _address(number: int, kind: int) -> str:
    return f"127.0.{kind}.{number}"


class History:
    """What happened when; printed when something is wrong."""

    def __init__(self, seed: int) -> None:
        self.lines = [f"seed {seed}"]
        self._began_s = time.monotonic()

    def note(self, what: str) -> None:
        self.lines.append(f"{time.monotonic() - self._began_s:8.3f} s: {what}")

    def __str__(self) -> str:
        return "\n".join(self.lines)


def stock_loads(bootstrap_servers: str, topics: Sequence[str]) -> list[Load]:
    """Three clients with acks=all, a topic for each."""
    few: dict[str, int] = {"partitions": PARTITIONS, "records_per_round": 10}
    return [
        Confluent(bootstrap_servers, topics[0], {"enable.idempotence": True}, **few),
        # Without idempotence librdkafka sends on to a new leader while a request to the old one is still open.
        Confluent(bootstrap_servers, topics[1], {"acks": "all", "max.in.flight": 1}, ordered=False, **few),
        KafkaPython(bootstrap_servers, topics[2], **few),
    ]


def count(load: Load) -> int:
    return len(load.acknowledged)


def wait_for_progress(loads: Sequence[Load]) -> None:
    """Every producer gets records acknowledged that it did not have when this was called."""
    before = [count(load) for load in loads]

    def behind() -> list[str]:
        return [
            f"{load.name}, {load.sent} sent, {count(load)} acknowledged, errors {load.errors[-3:]}"
            for load, was in zip(loads, before, strict=True)
            if count(load) <= was + 10
        ]

    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while found := behind():
        assert time.monotonic() < deadline, f"no progress within {PROGRESS_TIMEOUT_S} s: {found}"
        time.sleep(0.05)


class Agenda:
    """Faults by chance, one at a time; some of them are more than one."""

    def __init__(self, cluster: ChaosCluster, topics: Sequence[str], source: random.Random, history: History) -> None:
        self.cluster, self.topics, self.source, self.history = cluster, topics, source, history

    def fault(self) -> None:
        kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.kill_leader),
            (2, self.pause_shortly),
            (2, self.pause_beyond_lease),
            (2, self.cut_between_brokers),
            (2, self.cut_from_controllers),
            (2, self.cut_from_all_but_clients),
            (1, self.kill_controller),
            (1, self.kill_all),
        ]
        weights = [weight for weight, _ in kinds]
        self.source.choices([kind for _, kind in kinds], weights)[0]()

    def kill_leader(self) -> None:
        broker = self._leader()
        self._note(f"broker {broker} is killed")
        self.cluster.kill(broker)
        self._wait(0.1, 1.5)
        self._note(f"broker {broker} is started")
        self.cluster.begin(broker)

    def pause_shortly(self) -> None:
        self._pause(self.source.uniform(0.1, LEASE_S - 1))

    def pause_beyond_lease(self) -> None:
        self._pause(self.source.uniform(LEASE_S + 0.2, LEASE_S + 1.5))

    def _pause(self, duration_s: float) -> None:
        broker = self._leader()
        self._note(f"broker {broker} is paused for {duration_s:.2f} s")
        self.cluster.brokers[broker].process.send_signal(signal.SIGSTOP)
        time.sleep(duration_s)
        self.cluster.brokers[broker].process.send_signal(signal.SIGCONT)

    def cut_between_brokers(self) -> None:
        leader = self._leader()
        other = self.source.choice([broker for broker in self.cluster.brokers if broker != leader])
        self._cut((f"broker-{leader}", f"broker-{other}"))

    def cut_from_controllers(self) -> None:
        self._cut((f"broker-{self._leader()}", CONTROLLERS))

    def cut_from_all_but_clients(self) -> None:
        leader = self._leader()
        others = [f"broker-{broker}" for broker in self.cluster.brokers if broker != leader]
        self._cut(*[(f"broker-{leader}", other) for other in [*others, CONTROLLERS]])

    def _cut(self, *pairs: tuple[str, str]) -> None:
        for one, other in pairs:
            self.cluster.links.cut(one, other)
            self._note(f"the link between {one} and {other} is cut")
        self._wait(0.5, LEASE_S + 2)
        self._note("all links are whole")
        self.cluster.links.heal()

    def kill_controller(self) -> None:
        number = self.cluster.active_controller()
        self._note(f"controller {number} is killed, it was active")
        self.cluster.kill_controller(number)
        if self.source.random() < 0.5:
            self.kill_leader()
        self._wait(0.1, 1)
        self._note(f"controller {number} is started")
        self.cluster.begin_controller(number)

    def kill_all(self) -> None:
        self._note("all brokers are killed")
        for broker in self.cluster.brokers:
            self.cluster.kill(broker)
        for broker in self.source.sample(sorted(self.cluster.brokers), len(self.cluster.brokers)):
            self._wait(0, 0.5)
            self._note(f"broker {broker} is started")
            self.cluster.begin(broker)

    def _leader(self) -> int:
        return self.cluster.leader(self.source.choice(list(self.topics)), self.source.randrange(PARTITIONS))

    def _wait(self, least_s: float, most_s: float) -> None:
        time.sleep(self.source.uniform(least_s, most_s))

    def _note(self, what: str) -> None:
        self.history.note(what)


def suffer(cluster: ChaosCluster, seed: int, faults: int) -> None:
    """Stock producers write while faults by chance happen, then all that was acknowledged is looked for."""
    source, history = random.Random(seed), History(seed)
    topics = [f"{kind}-{seed}" for kind in ("idempotent", "plain", "python")]
    for topic in topics:
        cluster.create(topic, PARTITIONS, **TOPIC_CONFIGS)
    loads = stock_loads(cluster.bootstrap_servers, topics)
    agenda = Agenda(cluster, topics, source, history)
    try:
        for load in loads:
            load.thread.start()
        wait_for_progress(loads)
        agenda.kill_leader()
        for _ in range(faults - 1):
            # Now and then the next fault comes before all have recovered.
            if source.random() < 0.7:
                wait_for_progress(loads)
                history.note(f"acknowledged {[count(load) for load in loads]}")
            agenda.fault()
        wait_for_progress(loads)
        for load in loads:
            load.stop()
        history.note(f"sent {[load.sent for load in loads]}, acknowledged {[count(load) for load in loads]}")
        for topic in topics:
            for partition in range(PARTITIONS):
                cluster.wait_for_isr(topic, *cluster.state(topic, partition).replicas, partition=partition)
            cluster.wait_for_same_logs(topic, PARTITIONS)
        for load in loads:
            check(load, cluster.read(load.topic, PARTITIONS))
    finally:
        for load in loads:
            load.stopping.set()
        print(history)
        for name, part in [*cluster.brokers.items(), *cluster.controllers.items()]:
            assert part.process.poll() is None, f"{name} has ended: {history}"
