"""`make bench-spark`: `format("appliance")` beside Spark's own Kafka source, each with its own brokers, same records.

python -m tests.benchmarks.spark [--quick] [--print] [--only 100B]
python -m tests.benchmarks.spark --scale MILLIONS [--print]   what a record costs in larger and larger reads, alone
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.records.builder import NewRecord, build_batch
from appliance.records.compression import Codec
from spark.decode_native import NATIVE_VARIABLE, is_native
from tests.benchmarks.report import listed, marked, spread
from tests.benchmarks.run import give, machine_facts, say
from tests.benchmarks.servers import Appliance, BenchmarkedServer, Kafka, SideBySide, cpu_seconds_of, tree_of
from tests.benchmarks.spark_peer import kafka_source_jars, kafka_source_python
from tests.support.kafka_peer import die_with_parent
from tests.support.repo import REPO

BEGIN = "<!-- spark figures: written by `make bench-spark`, from here -->"
END = "<!-- spark figures: to here -->"
SCALE_BEGIN = "<!-- spark figures of scale: written by `make bench-spark ARGS='--scale 50'`, from here -->"
SCALE_END = "<!-- spark figures of scale: to here -->"
PARTITIONS = 2
CONFIG = {"segment.bytes": str(64 << 20), "retention.ms": "-1"}
TIERED = {"tiering.max.lag.ms": "5000"}
ROUNDS, QUICK_ROUNDS, WARM_ROUNDS, SCALE_ROUNDS = 5, 2, 2, 3
BATCHES = 40
"""Different ones; they come again and again."""
LATEST_TIERED = -5
TIERED_TIMEOUT_S = 240
READ_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Data:
    """A topic that both have, batch by batch the same bytes."""

    name: str
    title: str
    record_bytes: int
    codec: int
    records_per_batch: int
    records: int

    def batches(self) -> list[bytes]:
        chance = random.Random(self.name)
        return [
            build_batch([self._record(chance, number) for number in range(self.records_per_batch)], codec=self.codec)
            for _ in range(BATCHES)
        ]

    def _record(self, chance: random.Random, number: int) -> NewRecord:
        if self.codec == Codec.NONE:
            value = chance.randbytes(self.record_bytes)
        else:
            words = b" ".join(b"%d" % chance.randrange(100) for _ in range(self.record_bytes))
            value = words[: self.record_bytes]
        return (1_700_000_000_000 + number, None, value, [])


DATA = (
    Data("100B", "100 B", 100, Codec.NONE, 600, 2_400_000),
    Data("1KB", "1 KB", 1_000, Codec.NONE, 60, 480_000),
    Data("lz4", "100 B in lz4", 100, Codec.LZ4, 600, 2_400_000),
)
QUICK_SHARE = 8


class Reader:
    """A session of one of the two sources, in a process with children; its CPU time is that of all of them."""

    def __init__(self, name: str, python: str, settings: dict[str, Any], **environment: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            # -P: beside the program lies a module of the name `spark`, which it does not mean.
            [python, "-P", str(REPO / "tests" / "benchmarks" / "spark_reader.py"), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=REPO,
            env={
                **os.environ,
                "PYTHONPATH": str(REPO),
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                **environment,
            },
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self.version = self._answer()["spark"]

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def read(self, options: dict[str, str], server: BenchmarkedServer) -> dict[str, float]:
        """Read once: seconds by the clock, CPU seconds of this session and of its server."""
        assert self._process.stdin is not None
        mine, servers = self._cpu_seconds(), server.cpu_seconds()
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        got = self._answer()
        return {**got, "spark_cpu_s": self._cpu_seconds() - mine, "server_cpu_s": server.cpu_seconds() - servers}

    def _cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, tree_of(self._process.pid)))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self._process.wait(30)}")
        found: dict[str, Any] = json.loads(line)
        return found


def fill(server: BenchmarkedServer, data: Data, records: int, config: dict[str, str]) -> None:
    server.create_topic(data.name, PARTITIONS, config)
    batches = data.batches()
    with Client(server.bootstrap_servers) as client:
        for number in range(records // data.records_per_batch):
            client.produce(TopicPartition(data.name, number % PARTITIONS), batches[number % BATCHES], acks=1)


def wait_until_tiered(server: BenchmarkedServer, topic: str, records: int) -> None:
    """All that was written lies in the object store."""
    partitions = dict.fromkeys((TopicPartition(topic, number) for number in range(PARTITIONS)), LATEST_TIERED)
    deadline = time.monotonic() + TIERED_TIMEOUT_S
    with Client(server.bootstrap_servers) as client:
        while sum(found.offset + 1 for found in client.list_offsets(partitions).values()) < records:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is not tiered within {TIERED_TIMEOUT_S} s")
            time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to read."""

    name: str
    reader: Reader
    server: BenchmarkedServer
    options: dict[str, str]

    def read(self, topic: str, **more: str) -> dict[str, float]:
        options = {"kafka.bootstrap.servers": self.server.bootstrap_servers, "subscribe": topic, **self.options, **more}
        return self.reader.read(options, self.server)


Runs = dict[str, list[dict[str, float]]]


def measure(sides: Sequence[Side], data: Data, records: int, rounds: int) -> Runs:
    """All sides in turn; the first rounds warm them."""
    runs: Runs = {side.name: [] for side in sides}
    for number in range(-WARM_ROUNDS, rounds):
        for side in sides:
            run = side.read(data.name, startingOffsets="earliest")
            if (run["records"], run["bytes"]) != (records, records * data.record_bytes):
                raise AssertionError(f"{side.name}: {run} instead of {records} records")
            say(f"  {data.name} {side.name} {number + 1}/{rounds}: {run['wall_s']:.2f} s, CPU {all_cpu(run):.2f} s")
            if number >= 0:
                runs[side.name].append(run)
    return runs


def all_cpu(run: dict[str, float]) -> float:
    return run["spark_cpu_s"] + run["server_cpu_s"]


def table(data: Data, records: int, runs: Runs) -> list[str]:
    """The first side is what the others are compared with, round by round."""
    base, *_ = runs.values()
    lines = [
        f"### {data.title}, {records:,} records",
        "",
        "| | seconds | CPU s, Spark | CPU s, brokers | CPU s, all | times as fast | CPU, times less |",
        "|---|---|---|---|---|---|---|",
    ]

    def ratios(of: Callable[[dict[str, float]], float], mine: Sequence[dict[str, float]]) -> str:
        return spread([of(theirs) / of(run) for theirs, run in zip(base, mine, strict=True)], 2)

    for name, mine in runs.items():
        cells = [
            *(spread([run[part] for run in mine], 2) for part in ("wall_s", "spark_cpu_s", "server_cpu_s")),
            spread([all_cpu(run) for run in mine], 2),
            ratios(lambda run: run["wall_s"], mine),
            ratios(all_cpu, mine),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def scale(side: Side, data: Data, millions: int) -> list[str]:
    """What a record costs in larger and larger reads of one topic."""
    together = PARTITIONS * data.records_per_batch
    records = millions * 1_000_000 // together * together
    topic = Data(f"{data.name}-scale", "", data.record_bytes, data.codec, data.records_per_batch, records)
    fill(side.server, topic, records, {**CONFIG, **TIERED})
    wait_until_tiered(side.server, topic.name, records)
    lines = [f"### Cost of a record, {side.name}, {data.title}", ""]
    lines += ["| records | seconds | CPU of each, µs |", "|---|---|---|"]
    side.read(topic.name, startingOffsets="earliest", endingOffsets=ends_of(topic, records // millions))
    for size in [*(1_000_000 * 2**step for step in range(millions.bit_length() - 1)), records]:
        found = [
            side.read(topic.name, startingOffsets="earliest", endingOffsets=ends_of(topic, size))
            for _ in range(SCALE_ROUNDS)
        ]
        seconds, cost = [run["wall_s"] for run in found], [all_cpu(run) / size * 1e6 for run in found]
        say(f"  {size:,} records: {min(cost):.3f} µs")
        lines.append(f"| {size:,} | {spread(seconds, 2)} | {spread(cost, 3)} |")
    return lines


def ends_of(data: Data, size: int) -> str:
    """So many records from the beginning, as many of each partition."""
    return json.dumps({data.name: {str(number): size // PARTITIONS for number in range(PARTITIONS)}})


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data and few rounds: not to be quoted")
    parser.add_argument("--print", action="store_true", help="print the section instead of writing the document")
    parser.add_argument("--only", choices=[data.name for data in DATA], help="one kind of records")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} by default")
    parser.add_argument("--scale", type=int, metavar="MILLIONS", help="of records: what each costs, and nothing else")
    chosen = parser.parse_args(arguments)
    began = time.time()
    if chosen.scale is not None:
        if chosen.scale < 2:
            parser.error("--scale takes two million records or more")
        with SideBySide(Appliance) as (ours,), Reader("ours", sys.executable, {"format": "appliance"}) as mine:
            lines = scale(Side("ours, cold", mine, ours, {"tier": "tiered"}), DATA[0], chosen.scale)
            facts = [*machine_facts(SCALE_ROUNDS, began), ("Spark", f"{mine.version}; decoder: {decoder()}")]
        text = marked([*listed(facts), "", *lines], SCALE_BEGIN, SCALE_END)
        give(text, SCALE_BEGIN, SCALE_END, prints=chosen.print)
        return 0
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    lines = compare(rounds, QUICK_SHARE if chosen.quick else 1, chosen.only, began)
    give(marked(lines, BEGIN, END), BEGIN, END, prints=chosen.print)
    return 0


def compare(rounds: int, share: int, only: str | None, began: float) -> list[str]:
    """The whole section; `share`: by how much there are fewer records than should be quoted."""
    lines: list[str] = []
    jars, python = kafka_source_jars(), str(kafka_source_python())
    with ExitStack() as stack:
        kafka, ours = stack.enter_context(SideBySide(Kafka, Appliance))
        theirs = stack.enter_context(Reader("Spark's", python, {"format": "kafka", "jars": list(map(str, jars))}))
        sides = [Side("Spark's Kafka source, Apache Kafka", theirs, kafka, {})]
        for name, native in (("compiled", "1"), ("numpy", "0")):
            if native == "1" and not is_native():
                say("without the compiled helper: `make native` makes it")
                continue
            mine = Reader(f"ours, {name}", sys.executable, {"format": "appliance"}, **{NATIVE_VARIABLE: native})
            stack.enter_context(mine)
            sides += [Side(f"ours, hot, {name}", mine, ours, {"tier": "hot"}),
                      Side(f"ours, cold, {name}", mine, ours, {"tier": "tiered"})]  # fmt: skip
        for data in DATA:
            if only not in (None, data.name):
                continue
            records = data.records // share
            fill(kafka, data, records, CONFIG)
            fill(ours, data, records, {**CONFIG, **TIERED})
            wait_until_tiered(ours, data.name, records)
            lines += table(data, records, measure(sides, data, records, rounds))
        versions = f"{mine.version} for ours, {theirs.version} for Spark's Kafka source"
    head = ["**A quick run while developing: too few rounds to quote.**", ""] if share > 1 else []
    facts = [*machine_facts(rounds, began), ("Spark", f"{versions}; `local[2]` on the brokers' machine")]
    return [*head, *listed(facts), "", *lines[:-1]]


def decoder() -> str:
    return "compiled (`make native`)" if is_native() else "numpy"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
