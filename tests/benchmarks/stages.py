"""`make profile`: where the time of a produce request goes, stage by stage, into docs/benchmarks.md.

    python -m tests.benchmarks.stages [--requests N] [--print]

A whole broker runs on a thread of this process and the C client loads it. Clocks are put around the functions where a
stage begins; each stage is told without those inside it, in CPU time of that thread, so that others on the machine do
not count. What the clocks themselves cost is measured first and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns
from typing import Any

from appliance.base.disk import SystemDisk
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.client.connection import Connection as ClientConnection
from appliance.server import broker_api
from appliance.server.connection import Connection
from appliance.server.handlers import produce_fast
from appliance.server.server import Server
from tests.benchmarks.build import client_program
from tests.benchmarks.report import with_section
from tests.support.broker import running_cluster
from tests.support.repo import REPO
from tests.support.requests import new_topic

DOCUMENT = REPO / "docs" / "benchmarks.md"
BEGIN = "<!-- stages: written by `make profile`, from here -->"
END = "<!-- stages: to here -->"
LOADS = (("1 in flight", "1"), ("8 in flight", "8"))
STAGES = {
    "receive": "recv into the connection's buffer, find the frames",
    "check": "compare the request with the last one's shape, read the batch header, CRC-32C",
    "stage": "producer state, offset and leader epoch into the header, index entry when one is due",
    "tick": "lease, clocks and lists, once for all requests of a tick",
    "write": "one writev for each partition of a tick (the system call)",
    "after the write": "log end, high watermark, who waits",
    "answer": "build the answer from the prepared frame",
    "send": "send (the system call; on a loopback the client's side of the way is in it)",
    "loop": "epoll and callbacks of the event loop, and all that runs by the clock",
}


class Stages:
    """Time of each stage without those that were begun inside it. One thread."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = dict.fromkeys((*STAGES, "clocks"), 0)
        self._inner: list[int] = []
        self._own_ns = self._outer_ns = 0
        self._calibrate()

    def _calibrate(self) -> None:
        """What a stage that does nothing costs: as it sees itself, and as whoever calls it sees the rest."""
        rounds = 20_000
        nothing = self.timed("loop", lambda: None)
        began = thread_time_ns()
        for _ in range(rounds):
            nothing()
        all_ns = (thread_time_ns() - began) // rounds
        self._own_ns = self.spent_ns["loop"] // rounds
        self._outer_ns = all_ns - self._own_ns
        self.spent_ns["loop"] = 0

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        spent, inner = self.spent_ns, self._inner

        def run(*arguments: Any) -> Any:
            inner.append(0)
            began = thread_time_ns()
            try:
                return function(*arguments)
            finally:
                took = thread_time_ns() - began
                spent[stage] += took - inner.pop() - self._own_ns
                if inner:
                    inner[-1] += took + self._outer_ns
                else:
                    spent["clocks"] += self._outer_ns
                spent["clocks"] += self._own_ns + (self._outer_ns if inner else 0)

        return run

    def put_in(self) -> None:
        """Before a broker starts: it binds some of these functions."""
        Connection._on_readable = self.timed("receive", Connection._on_readable)  # type: ignore[method-assign]
        Connection.end_tick = self.timed("answer", Connection.end_tick)  # type: ignore[method-assign]
        Connection._send_first = self.timed("send", Connection._send_first)  # type: ignore[method-assign]
        HostedPartition.append = self.timed("stage", HostedPartition.append)  # type: ignore[method-assign]
        HostedPartition.written = self.timed("after the write", HostedPartition.written)  # type: ignore[method-assign]
        PartitionHost.end_of_tick = self.timed("tick", PartitionHost.end_of_tick)  # type: ignore[method-assign]
        SystemDisk.writev = self.timed("write", SystemDisk.writev)  # type: ignore[method-assign]
        Server._tick = self.timed("tick", Server._tick)  # type: ignore[method-assign]
        real = produce_fast.fast_produce
        broker_api.produce_fast.fast_produce = lambda broker: self.timed("check", real(broker))  # type: ignore[assignment]


def measure(requests: int) -> dict[str, tuple[dict[str, float], float]]:
    """By load: µs of each stage per request, and requests per second."""
    stages = Stages()
    stages.put_in()
    found: dict[str, tuple[dict[str, float], float]] = {}
    with tempfile.TemporaryDirectory(prefix="stages-") as folder, running_cluster(Path(folder)) as cluster:
        port = cluster.brokers[1].port
        with ClientConnection("127.0.0.1", port, client_id="stages", timeout_ms=10_000) as connection:
            topic = new_topic(connection).name
        for name, depth in LOADS:
            command = [client_program("produce_load"), "--port", str(port), "--topic", topic, "--depth", depth]
            subprocess.run([*command, "--requests", str(requests // 10)], check=True, capture_output=True)
            before, cpu_before = dict(stages.spent_ns), thread_cpu_ns("broker-1")
            done = subprocess.run(
                [*command, "--requests", str(requests)], check=True, capture_output=True, text=True, timeout=300
            )
            cpu_ns = thread_cpu_ns("broker-1") - cpu_before
            spent = {stage: (ns - before[stage]) / requests / 1e3 for stage, ns in stages.spent_ns.items()}
            spent["loop"] = max(0.0, cpu_ns / requests / 1e3 - sum(spent.values()))
            del spent["clocks"]
            found[name] = spent, json.loads(done.stdout)["requests_per_s"]
    return found


def thread_cpu_ns(name: str) -> int:
    """User and system time of one of our threads."""
    (thread,) = [each for each in threading.enumerate() if each.name == name]
    return time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))  # type: ignore[arg-type]


def section(found: dict[str, tuple[dict[str, float], float]], requests: int) -> str:
    lines = [
        BEGIN,
        "",
        f"- Date: {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC; Python {platform.python_version()}; "
        f"{requests:,} requests of one record of 100 B over 32 connections, acks=1; "
        f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        "",
        "| Stage, µs per request | " + " | ".join(found) + " | what it is |",
        "|---|" + "---|" * (len(found) + 1),
    ]
    for stage, text in STAGES.items():
        figures = " | ".join(f"{spent[stage]:.2f}" for spent, _ in found.values())
        lines.append(f"| {stage} | {figures} | {text} |")
    sums = " | ".join(f"{sum(spent.values()):.2f}" for spent, _ in found.values())
    speeds = " | ".join(f"{speed:,.0f}" for _, speed in found.values())
    lines += [f"| all | {sums} | CPU time of the broker's thread |", f"| requests, 1/s | {speeds} | |", "", END]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--print", action="store_true", help="print the section instead of writing the document")
    chosen = parser.parse_args()
    text = section(measure(chosen.requests), chosen.requests)
    if chosen.print:
        print(text)
    else:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(), text, BEGIN, END))
    return 0


if __name__ == "__main__":
    sys.exit(main())
