"""What is measured, and how: one entry per load. A load is one run of a C client against one server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmarks.build import client_program
from tests.benchmarks.servers import BenchmarkedServer

CLIENT_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a load."""

    name: str
    unit: str
    of: Callable[[dict[str, float]], float]
    higher_is_better: bool = False
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """One way to use a server. `arguments` are the client's."""

    name: str
    title: str
    program: str
    arguments: tuple[str, ...]
    measures: tuple[Measure, ...]
    prepare: tuple[str, ...] = ()
    """Arguments of a produce_load that fills the topic first; its topic is kept for all pairs."""
    partitions: int = 1
    """Of its topic."""
    quick: tuple[str, ...] = ()
    """Arguments that come behind in a quick run; the last one of a name wins."""


REQUESTS_PER_S = Measure("requests", "1/s", lambda run: run["requests_per_s"], higher_is_better=True, digits=0)
CPU_PER_REQUEST = Measure("server CPU per request", "µs", lambda run: run["server_cpu_s"] / run["requests"] * 1e6)
P50 = Measure("p50", "ms", lambda run: run["p50_us"] / 1e3, digits=3)
P99 = Measure("p99", "ms", lambda run: run["p99_us"] / 1e3, digits=2)
P999 = Measure("p99.9", "ms", lambda run: run["p999_us"] / 1e3, digits=2)
MEAN = Measure("mean", "ms", lambda run: run["mean_us"] / 1e3, digits=3)
PRODUCED = Measure("throughput", "MB/s", lambda run: run["record_bytes_per_s"] / 1e6, higher_is_better=True, digits=0)
FETCHED = Measure("throughput", "MB/s", lambda run: run["bytes_per_s"] / 1e6, higher_is_better=True, digits=0)
CPU_PER_GB_PRODUCED = Measure(
    "server CPU per GB", "s", lambda run: run["server_cpu_s"] / (run["requests"] * run["batch_bytes"] / 1e9), digits=2
)
CPU_PER_GB_FETCHED = Measure("server CPU per GB", "s", lambda run: run["server_cpu_s"] / (run["bytes"] / 1e9), digits=2)
CPU_PER_RECORD = Measure("server CPU per record", "µs", lambda run: run["server_cpu_s"] / run["records"] * 1e6)

SMALL = (REQUESTS_PER_S, P50, P99, P999, CPU_PER_REQUEST)
BULK = ("--connections", "2", "--depth", "4", "--records", "600", "--record-bytes", "100")

LOADS = (
    Load(
        "small-1",
        "Produce, one record of 100 B per request, acks=1, 32 connections, 1 in flight",
        "produce_load",
        ("--connections", "32", "--depth", "1", "--requests", "200000"),
        SMALL,
        quick=("--requests", "40000"),
    ),
    Load(
        "small-8",
        "Produce, one record of 100 B per request, acks=1, 32 connections, 8 in flight",
        "produce_load",
        ("--connections", "32", "--depth", "8", "--requests", "300000"),
        SMALL,
        quick=("--requests", "60000"),
    ),
    Load(
        "idempotent-1",
        "The same from idempotent producers, acks=all, 32 connections, 1 in flight",
        "produce_load",
        ("--connections", "32", "--depth", "1", "--requests", "200000", "--idempotent", "--acks", "-1"),
        SMALL,
        quick=("--requests", "40000"),
    ),
    Load(
        "partitions-50",
        "Produce, 50 partitions with one batch of 100 B each per request, acks=1, 8 connections, 1 in flight",
        "produce_load",
        ("--connections", "8", "--depth", "1", "--batches", "50", "--requests", "10000"),
        (REQUESTS_PER_S, P50, P99, CPU_PER_REQUEST),
        quick=("--requests", "2000"),
        partitions=50,
    ),
    Load(
        "steady",
        "Produce at a fixed 10,000 requests/s (open loop: delays count from when a request was due), 32 connections",
        "produce_load",
        ("--connections", "32", "--depth", "64", "--requests", "80000", "--rate", "10000"),
        (P50, P99, P999, CPU_PER_REQUEST),
        quick=("--requests", "20000"),
    ),
    Load(
        "bulk",
        "Produce in bulk, frames of 66 kB (600 records of 100 B), acks=1, 2 connections, 4 in flight",
        "produce_load",
        (*BULK, "--requests", "8000"),
        (PRODUCED, P50, P99, CPU_PER_GB_PRODUCED),
        quick=("--requests", "2000"),
    ),
    Load(
        "fetch",
        "Fetch from the page cache, 1 connection, 1 MiB per answer, batches of 66 kB",
        "fetch_drain",
        ("--bytes", str(6 << 30)),
        (FETCHED, CPU_PER_GB_FETCHED),
        prepare=(*BULK, "--requests", "6000"),
        quick=("--bytes", str(2 << 30)),
    ),
    Load(
        "end-to-end",
        "One record of 100 B from producer (acks=1) to a waiting consumer, one at a time",
        "end_to_end",
        ("--records", "5000"),
        (MEAN, P50, P99, P999, CPU_PER_RECORD),
        quick=("--records", "1000"),
    ),
)


def run_client(server: BenchmarkedServer, program: str, arguments: tuple[str, ...]) -> dict[str, float]:
    """What the client measured, and `server_cpu_s`: what the server's processes used meanwhile."""
    before = server.cpu_seconds()
    done = subprocess.run(
        [client_program(program), "--host", server.host, "--port", str(server.port), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
    )
    used = server.cpu_seconds() - before
    if done.returncode != 0:
        raise RuntimeError(f"{program} against {server.name}: {done.stderr.strip()}")
    run: dict[str, float] = json.loads(done.stdout)
    if not run.get("complete", True):
        raise RuntimeError(f"{program} against {server.name} ran out of time: {done.stdout.strip()}")
    return run | {"server_cpu_s": used}
