"""`make bench-scale`: as many partitions as a busy cluster has, on one broker of ours and on one node of Apache Kafka.

    python -m tests.benchmarks.scale [--partitions N] [--ours-only | --kafka-only] [--print]

One after the other, with nothing beside them. Each creates the topics, takes a record in every partition, stands idle,
takes a load on 1,000 partitions, is stopped and started, and is killed and started under that load. Both have the same
limit of open files where they can live with it: ours 10,000, while Apache Kafka keeps a file open for each partition.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from appliance.base.ids import TopicPartition
from appliance.client.connection import Connection
from tests.benchmarks.report import listed, marked
from tests.benchmarks.run import give, machine_facts, parsed, parser_of, say
from tests.benchmarks.scale_client import (
    SpreadLoad,
    create,
    ends_of,
    metadata_ms,
    names_of,
    produce_to_all,
)
from tests.benchmarks.servers import cpu_seconds_of, memory_bytes_of, open_files_of, tree_of
from tests.support.kafka_peer import KafkaPeer, die_with_parent
from tests.support.ports import free_port
from tests.support.repo import REPO
from tests.support.running import python_environment

BEGIN = "<!-- scale figures: written by `make bench-scale`, from here -->"
END = "<!-- scale figures: to here -->"
PARTITIONS = 15_500
OPEN_FILES_MAX = 10_000
KAFKA_OPEN_FILES = 20_000
DEADLINE_S = 900
SETTLE_S, IDLE_S, LOAD_S = 15.0, 30.0, 15.0
STOP_TIMEOUT_S = 300
METADATA_ASKED = 7
SEED = 1


class ScaledServer(ABC):
    """A server that is started, stopped and killed with its data kept."""

    name: str

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @abstractmethod
    def address(self) -> tuple[str, int]: ...

    @abstractmethod
    def start(self) -> None:
        """Begin; it may answer later."""

    @abstractmethod
    def stop(self) -> None:
        """In order, and wait for the end."""

    @abstractmethod
    def kill(self) -> None:
        """Every process of it, as the kernel would."""

    def processes(self) -> list[int]:
        return tree_of(self.pid)

    def memory_bytes(self) -> int:
        return sum(map(memory_bytes_of, self.processes()))

    def cpu_seconds(self) -> float:
        """Since its processes began."""
        return sum(map(cpu_seconds_of, self.processes()))

    def largest(self, of: Callable[[int], float]) -> float:
        """Of the one process that has most of it: the broker's."""
        return max(map(of, self.processes()), default=0.0)


class ScaledKafka(ScaledServer):
    """One KRaft node, broker and controller in one process, with 1 GiB of heap."""

    name = "Apache Kafka 4.3.0"

    def __init__(self, folder: Path) -> None:
        self._peer = KafkaPeer(heap="1g", folder=folder / "kafka", start_timeout_s=DEADLINE_S)
        self._answers = threading.Event()
        self._may_end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._peer.pid

    def address(self) -> tuple[str, int]:
        return self._peer.host, self._peer.port

    def start(self) -> None:
        with_open_files(KAFKA_OPEN_FILES)
        self._answers.clear()
        self._may_end.clear()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._peer.start()
        finally:
            self._answers.set()
        # The node would end with the thread that started it.
        self._may_end.wait()

    def stop(self) -> None:
        self._end(lambda: self._peer.stop(STOP_TIMEOUT_S))

    def kill(self) -> None:
        self._end(self._peer.kill)

    def _end(self, end: Callable[[], None]) -> None:
        if self._thread is not None:
            self._answers.wait()
            end()
            self._may_end.set()
            self._thread.join()
            self._thread = None


class ScaledAppliance(ScaledServer):
    """`appliance up --brokers 1 --runtime local`: supervisor, controller, broker, HTTP ingest and connectors."""

    name = "appliance"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "appliance"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "appliance.cli", "up", "--brokers", "1", "--runtime", "local"]
        command += ["--data-dir", str(self._folder / "data"), "--port", str(self._port)]
        command += ["--http-port", "0", "--connect-port", "0"]

        def prepare() -> None:
            die_with_parent()
            with_open_files(OPEN_FILES_MAX)

        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPO,
                env=python_environment(),
                start_new_session=True,
                preexec_fn=prepare,
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def with_open_files(limit: int) -> None:
    """For this process and those that it starts from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, hard), hard))


class Measured:
    """What one server showed, in the order of the rows."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[str, tuple[float, int]] = {}

    def note(self, row: str, value: float, digits: int = 1) -> None:
        self.rows[row] = (value, digits)
        say(f"  {self.name}: {row}: {value:,.{digits}f}")


def measure(server: ScaledServer, partitions: Sequence[TopicPartition]) -> Measured:
    """Everything, once."""
    measured = Measured(server.name)
    count = len(partitions)
    server.start()
    wait_until_it_answers(server)
    before = server.memory_bytes()

    began = time.monotonic()
    with Connection(*server.address(), timeout_ms=DEADLINE_S * 1_000) as connection:
        create(connection, partitions)
        measured.note("CreateTopics answered, s", time.monotonic() - began)
        produce_to_all(server.address, partitions, time.monotonic() + DEADLINE_S)
    measured.note("all created and a record in each, s", time.monotonic() - began)
    measured.note("its CPU time until then, s", server.cpu_seconds())
    expected = dict.fromkeys(partitions, 1)

    time.sleep(SETTLE_S)
    measured.note("memory, MiB", server.memory_bytes() / 2**20, 0)
    measured.note("memory per partition, KiB", (server.memory_bytes() - before) / 2**10 / count)
    measured.note("open files of its largest process", server.largest(open_files_of), 0)
    note_idle(measured, server)
    note_load(measured, server, partitions, expected)

    began = time.monotonic()
    server.stop()
    measured.note("stopped in order, s", time.monotonic() - began)
    note_return(measured, server, partitions, expected, "a stop")

    load = SpreadLoad(server.address, partitions, SEED)
    load.start()
    time.sleep(LOAD_S / 3)
    began = time.monotonic()
    server.kill()
    load.end()
    add(expected, load.acknowledged)
    note_return(measured, server, partitions, expected, "kill -9", began)
    measured.note("memory after that, MiB", server.memory_bytes() / 2**20, 0)
    server.stop()
    return measured


def wait_until_it_answers(server: ScaledServer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            metadata_ms(server.address())
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"{server.name} gives no answer")


def note_idle(measured: Measured, server: ScaledServer) -> None:
    """With no client at all."""
    before = {pid: cpu_seconds_of(pid) for pid in server.processes()}
    began = time.monotonic()
    time.sleep(IDLE_S)
    passed = time.monotonic() - began
    used = [cpu_seconds_of(pid) - at for pid, at in before.items()]
    measured.note("idle, all processes, % of a core", sum(used) / passed * 100)
    measured.note("idle, its busiest process, % of a core", max(used) / passed * 100)


def note_load(
    measured: Measured, server: ScaledServer, partitions: Sequence[TopicPartition], expected: dict[TopicPartition, int]
) -> None:
    load = SpreadLoad(server.address, partitions, SEED + 1)
    load.start()
    deadline = time.monotonic() + LOAD_S
    asked: list[float] = []
    for _ in range(METADATA_ASKED):
        metadata_took, led = metadata_ms(server.address())
        assert led >= len(partitions), f"{led} of {len(partitions)} partitions have a leader"
        asked.append(metadata_took)
    measured.note("Metadata about everything, ms", statistics.median(asked))
    time.sleep(max(0.0, deadline - time.monotonic()))
    load.end()
    add(expected, load.acknowledged)
    took = sorted(load.took_ms)
    measured.note("load on 1,000 partitions, one at a time: p50, ms", took[len(took) // 2], 2)
    measured.note("load on 1,000 partitions, one at a time: p99, ms", took[len(took) * 99 // 100], 2)
    measured.note("open files of its largest process, then", server.largest(open_files_of), 0)


def note_return(
    measured: Measured,
    server: ScaledServer,
    partitions: Sequence[TopicPartition],
    expected: dict[TopicPartition, int],
    after: str,
    began: float | None = None,
) -> None:
    """Start again; count until the first record is acknowledged, and until every partition has taken one."""
    began = time.monotonic() if began is None else began
    first: list[float] = []
    server.start()
    deadline = began + DEADLINE_S
    produce_to_all(server.address, partitions, deadline, lambda: first.append(time.monotonic() - began))
    measured.note(f"from {after} to the first acknowledged record, s", first[0])
    measured.note(f"from {after} to a record in each partition, s", time.monotonic() - began)
    measured.note(f"its CPU time from {after} until then, s", server.cpu_seconds())
    add(expected, dict.fromkeys(partitions, 1))
    with Connection(*server.address(), timeout_ms=DEADLINE_S * 1_000) as connection:
        ends = ends_of(connection, partitions)
    lost = [tp for tp in partitions if ends[tp] < expected[tp]]
    if lost:
        told = [f"{tp} ends at {ends[tp]}, {expected[tp]} were acknowledged" for tp in lost[:5]]
        raise AssertionError(f"{server.name} lost records of {len(lost)} partitions after {after}: {told}")


def add(expected: dict[TopicPartition, int], more: dict[TopicPartition, int]) -> None:
    for partition, count in more.items():
        expected[partition] += count


def section(facts: Sequence[tuple[str, str]], results: Sequence[Measured]) -> str:
    """The marked part of the document."""
    lines = [*listed(facts), ""]
    both = len(results) == 2
    lines.append("| | " + " | ".join(each.name for each in results) + (" | ratio |" if both else " |"))
    lines.append("|---|" + "---|" * (len(results) + both))
    for row, (_, digits) in results[0].rows.items():
        values = [each.rows[row][0] for each in results]
        cells = [f"{value:,.{digits}f}" for value in values]
        if both:
            cells.append(f"{values[1] / values[0]:.2f}" if values[0] else "")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return marked(lines, BEGIN, END)


def main(arguments: Sequence[str]) -> int:
    parser = parser_of("bench-scale", __doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"how many ({PARTITIONS:,})")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--ours-only", action="store_true", help="without Apache Kafka")
    alone.add_argument("--kafka-only", action="store_true", help="without the appliance")
    chosen = parsed(parser, arguments)
    kinds: list[type[ScaledKafka] | type[ScaledAppliance]] = []
    if not chosen.ours_only:
        kinds.append(ScaledKafka)
    if not chosen.kafka_only:
        kinds.append(ScaledAppliance)
    began, partitions, results = time.time(), names_of(chosen.partitions), []
    for kind in kinds:
        # What the one before has left in the page cache is not the next one's to wait for.
        os.sync()
        with tempfile.TemporaryDirectory(prefix="benchmark-scale-", ignore_cleanup_errors=True) as folder:
            server = kind(Path(folder))
            try:
                results.append(measure(server, partitions))
            finally:
                server.stop()
    facts = [(name, fact) for name, fact in machine_facts(1, began) if name != "Runs"]
    facts += [
        ("Partitions", f"{chosen.partitions:,}, a hundred to a topic, one replica each"),
        ("Open files", f"ours may have {OPEN_FILES_MAX:,} in each process, Apache Kafka {KAFKA_OPEN_FILES:,}"),
        ("Memory and CPU", "of all processes: ours are supervisor, controller, broker, HTTP ingest and connectors"),
    ]
    prints = chosen.print or len(results) < 2 or chosen.partitions < PARTITIONS
    give(section(facts, results), BEGIN, END, prints=prints)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
