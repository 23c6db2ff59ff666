"""`make bench-failover`: how long a partition has no leader when its leader's process is killed, ours and Kafka's.

    python -m tests.benchmarks.failover [--quick] [--kills N] [--rounds N] [--only NAME ...] [--print]

Three nodes, replication factor 3, `min.insync.replicas` 2. A node is killed with SIGKILL under a small load, and three
clocks run from there: a survivor's Metadata names new leaders for all partitions that the victim led ("leader"); a bare
record with acks=all is accepted by up to nine of them ("probe"); a librdkafka producer (idempotent) gets the
acknowledgement of a record that was handed to it after the kill ("ack", the slowest of up to nine partitions; its own
back-offs are in it). Then the node comes back, and the next kill waits until all replicas are in sync.

Cells that were not run keep their rows in docs/benchmarks.md.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.benchmarks.run import give, output_of, parsed, parser_of, say
from tests.benchmarks.three_nodes import FAST_SESSIONS, HOST, ApplianceNodes, KafkaNodes, ThreeNodes
from tests.support.repo import REPO
from tests.support.requests import batch_of, produce

BEGIN = "<!-- failover figures: written by `make bench-failover`, from here -->"
END = "<!-- failover figures: to here -->"
KEPT = REPO / ".cache" / "benchmarks" / "failover.json"
KILLS, QUICK_KILLS, KAFKA_KILLS = 20, 4, 3
ROUNDS = 3
PROBED_MAX = 9
RATE_PER_S = 300
POLL_S = 0.005
GIVE_UP_S = 60.0
STORE_AWAY_S = 5.0
SETTLE_S = 1.0

Clocks = dict[str, float]
"""Milliseconds since the kill."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table."""

    name: str
    title: str
    start: Callable[[Path], ThreeNodes]
    partitions: int = 1
    with_controller: bool = False
    """The active controller dies in the same moment."""
    store_away: bool = False
    """The object store gives no answer for the first seconds."""
    is_kafka: bool = False


CELLS = (
    Cell("one", "appliance", ApplianceNodes),
    Cell("many", "appliance", ApplianceNodes, partitions=1_000),
    Cell("store-50", "appliance, 50 ms more per store call", lambda at: ApplianceNodes(at, store_delay_ms=50)),
    Cell("store-300", "appliance, 300 ms more per store call", lambda at: ApplianceNodes(at, store_delay_ms=300)),
    Cell("controller", "appliance, with the active controller", ApplianceNodes, with_controller=True),
    Cell(
        "store-away",
        f"appliance, the store away for {STORE_AWAY_S:.0f} s",
        lambda at: ApplianceNodes(at, store_delay_ms=0),
        store_away=True,
    ),
    Cell("kafka", "Apache Kafka 4.3, defaults", KafkaNodes, is_kafka=True),
    Cell(
        "kafka-fast",
        "Apache Kafka 4.3, session 2 s, heartbeat 0.3 s",
        lambda at: KafkaNodes(at, FAST_SESSIONS),
        is_kafka=True,
    ),
    Cell(
        "kafka-fast-many",
        "Apache Kafka 4.3, session 2 s, heartbeat 0.3 s",
        lambda at: KafkaNodes(at, FAST_SESSIONS),
        partitions=1_000,
        is_kafka=True,
    ),
)


class Load:
    """An idempotent producer that writes a little all the time, and says when records were acknowledged."""

    def __init__(self, nodes: ThreeNodes, topic: str, partitions: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": nodes.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )
        self._topic = topic
        self._partitions = partitions
        self._lock = threading.Lock()
        self._first_after: dict[int, float] = {}
        self._watched_since = float("inf")
        self._stopping = threading.Event()
        self.sent = self.acknowledged = 0
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, since: float) -> None:
        """From now on note the first acknowledgement, by partition, of what is handed over later."""
        with self._lock:
            self._first_after.clear()
            self._watched_since = since

    def acknowledged_after(self) -> dict[int, float]:
        with self._lock:
            return dict(self._first_after)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            partition = number % self._partitions
            number += 1
            handed_over = time.monotonic()
            try:
                self._producer.produce(
                    self._topic,
                    b"%d" % number,
                    partition=partition,
                    on_delivery=lambda error, _, p=partition, at=handed_over: self._delivered(error, p, at),
                )
                self.sent += 1
            except BufferError:
                pass
            self._producer.poll(1 / RATE_PER_S)

    def _delivered(self, error: Any, partition: int, handed_over: float) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acknowledged += 1
        with self._lock:
            if handed_over >= self._watched_since:
                self._first_after.setdefault(partition, time.monotonic())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(GIVE_UP_S)


class LeaderWatch:
    """Asks one survivor for Metadata, until it names other leaders than the victim."""

    def __init__(self, nodes: ThreeNodes, topic: str, survivor: int) -> None:
        self._connection = Connection(HOST, nodes.ports[survivor], timeout_ms=5_000)
        self._request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def wait(self, victim: int, lost: set[int]) -> tuple[float, dict[int, int]]:
        """When the last partition has a new leader, and who leads."""
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            answer = self._connection.call(self._request, 9)
            leaders = {row.partition_index: row.leader_id for row in answer.topics[0].partitions}
            if all(leaders[partition] not in (victim, -1) for partition in lost):
                return time.monotonic(), leaders
            time.sleep(POLL_S)
        raise TimeoutError("no new leader")


def probe(nodes: ThreeNodes, topic: CreatableTopicResult, leaders: dict[int, int], wanted: list[int]) -> float:
    """When a bare acks=all record has been accepted by each of the partitions, one after the other."""
    deadline = time.monotonic() + GIVE_UP_S
    for partition in wanted:
        while True:
            try:
                with Connection(HOST, nodes.ports[leaders[partition]], timeout_ms=2_000) as connection:
                    code = produce(connection, topic, batch_of(b"probe"), partition=partition, acks=-1).error_code
            except (ConnectionLost, CallTimedOut):
                code = -1
            if code == 0:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"partition {partition} takes no record: error {code}")
            time.sleep(POLL_S)
    return time.monotonic()


def one_kill(cell: Cell, nodes: ThreeNodes, topic: CreatableTopicResult, load: Load) -> Clocks:
    rows = nodes.rows_of(topic.name)
    leads = Counter(row.leader_id for row in rows)
    active = nodes.active_controller() if isinstance(nodes, ApplianceNodes) and cell.with_controller else 0
    victim = max(leads, key=lambda node: leads[node])
    lost = {row.partition_index for row in rows if row.leader_id == victim}
    probed = sorted(lost)[:: max(1, len(lost) // PROBED_MAX)][:PROBED_MAX]
    watch = LeaderWatch(nodes, topic.name, next(node for node in nodes.ports if node != victim))
    if isinstance(nodes, ApplianceNodes):
        nodes.store_away = cell.store_away
        if cell.store_away:
            threading.Timer(STORE_AWAY_S, lambda: setattr(nodes, "store_away", False)).start()
        if cell.with_controller:
            nodes.kill_controller(active)
    killed = time.monotonic()
    load.watch(killed)
    nodes.kill(victim)
    clocks: Clocks = {}
    at, leaders = watch.wait(victim, lost)
    clocks["leader"] = (at - killed) * 1e3
    clocks["probe"] = (probe(nodes, topic, leaders, probed) - killed) * 1e3
    deadline = time.monotonic() + GIVE_UP_S
    while not set(probed) <= (acknowledged := load.acknowledged_after()).keys():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the producer has no acknowledgement yet; it failed with {load.failed[:3]}")
        time.sleep(POLL_S)
    clocks["ack"] = (max(acknowledged[partition] for partition in probed) - killed) * 1e3
    if isinstance(nodes, ApplianceNodes) and cell.with_controller:
        nodes.start_controller(active)
    nodes.start_node(victim)
    nodes.wait_for_isr(topic.name)
    time.sleep(SETTLE_S)
    return clocks


def run_cell(cell: Cell, kills: int) -> list[Clocks]:
    folder = Path(tempfile.mkdtemp(prefix="failover-"))
    results: list[Clocks] = []
    nodes = cell.start(folder)
    try:
        with nodes:
            topic = CreatableTopicResult(name="failover")
            nodes.create_topic(topic.name, cell.partitions)
            load = Load(nodes, topic.name, cell.partitions)
            try:
                time.sleep(SETTLE_S)
                for number in range(kills):
                    results.append(one_kill(cell, nodes, topic, load))
                    told = ", ".join(f"{name} {value:,.0f} ms" for name, value in results[-1].items())
                    say(f"  {cell.name} {number + 1}/{kills}: {told}")
            finally:
                load.stop()
            if load.failed or load.acknowledged != load.sent:
                say(f"  {cell.name}: {len(load.failed)} deliveries failed: {load.failed[:3]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def row_of(cell: Cell, kept: dict[str, Any]) -> str:
    def shown(name: str) -> str:
        values = [run[name] / 1e3 for run in kept["runs"]]
        return f"{statistics.median(values):.2f} / {max(values):.2f}"

    return (
        f"| {cell.title} | {cell.partitions:,} | {len(kept['runs'])} | {shown('leader')} | {shown('probe')} "
        f"| {shown('ack')} | {kept['date']}, {kept['commit']} |"
    )


def section(kept: dict[str, Any]) -> str:
    head = "| | partitions | kills | leader, s: median / worst | probe | ack | measured |"
    rows = [row_of(cell, kept[cell.name]) for cell in CELLS if cell.name in kept]
    return "\n".join(
        [BEGIN, "", *([head, "|---|---|---|---|---|---|---|", *rows] if rows else ["No run yet."]), "", END]
    )


def main() -> int:
    parser = parser_of("bench-failover", __doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills, once")
    parser.add_argument("--kills", type=int, default=0, help=f"of each round ({KILLS}; of Apache Kafka {KAFKA_KILLS})")
    parser.add_argument("--rounds", type=int, default=0, help=f"each with a cluster of its own ({ROUNDS})")
    parser.add_argument("--only", nargs="+", choices=[cell.name for cell in CELLS], default=[], help="only these rows")
    chosen = parsed(parser)
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for cell in CELLS:
        if chosen.only and cell.name not in chosen.only:
            continue
        usual = QUICK_KILLS if chosen.quick else KAFKA_KILLS if cell.is_kafka else KILLS
        rounds = chosen.rounds or (1 if chosen.quick or cell.is_kafka else ROUNDS)
        runs = [clocks for _ in range(rounds) for clocks in run_cell(cell, chosen.kills or usual)]
        commit = output_of("git", "rev-parse", "--short=10", "HEAD")
        kept[cell.name] = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit, "runs": runs}
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(kept))
    give(section(kept), BEGIN, END, prints=chosen.print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
