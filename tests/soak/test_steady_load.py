"""A broker under a steady load for a while: it answers in time, tiers behind the load, loses nothing and does not grow.

SOAK_MINUTES says for how long (10).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.benchmarks.figures import run_client
from tests.benchmarks.servers import Appliance, BenchmarkedServer, SideBySide

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

MINUTES = int(os.environ.get("SOAK_MINUTES", "10"))
REQUESTS_PER_S = 1_000
RECORDS_PER_REQUEST, RECORD_BYTES = 10, 100
TOPIC = "soak"
CONFIG = {
    "segment.bytes": str(8 << 20),
    "local.retention.bytes": str(32 << 20),
    "retention.ms": "-1",
    "tiering.max.lag.ms": "30000",
}
GROWTH_ALLOWED = 1.25


@pytest.fixture
def server() -> Iterator[BenchmarkedServer]:
    with SideBySide(Appliance) as servers:
        yield servers[0]


def one_minute(server: BenchmarkedServer) -> dict[str, float]:
    load = ("--topic", TOPIC, "--connections", "16", "--depth", "256", "--idempotent", "--acks", "-1")
    size = ("--records", str(RECORDS_PER_REQUEST), "--record-bytes", str(RECORD_BYTES))
    count = ("--rate", str(REQUESTS_PER_S), "--requests", str(REQUESTS_PER_S * 60))
    return run_client(server, "produce_load", (*load, *size, *count))


def test_a_steady_load_is_served_tiered_and_kept_whole(server: BenchmarkedServer) -> None:
    server.create_topic(TOPIC, config=CONFIG)
    one_minute(server)
    memory, files = server.memory_bytes(), server.open_files()
    produced_bytes = produced_requests = 0.0
    for minute in range(1, MINUTES):
        run = one_minute(server)
        produced_requests += run["requests"]
        produced_bytes = run["batch_bytes"] * (produced_requests + REQUESTS_PER_S * 60)
        print(f"minute {minute}: p99 {run['p99_us'] / 1e3:.1f} ms, CPU {run['server_cpu_s']:.1f} s, {memory >> 20} MiB")
        assert run["p50_us"] < 20_000
    drained = run_client(server, "fetch_drain", ("--topic", TOPIC, "--bytes", str(int(produced_bytes))))
    records = (produced_requests + REQUESTS_PER_S * 60) * RECORDS_PER_REQUEST
    assert (drained["records"], drained["passes"]) == (records, 1), "every record once, old ones from the object store"
    time.sleep(5)
    assert server.memory_bytes() < memory * GROWTH_ALLOWED + (64 << 20)
    assert server.open_files() < files * GROWTH_ALLOWED + 64
