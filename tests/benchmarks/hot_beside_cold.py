"""What a reader of the tier does to the p99 of produce requests on the broker that it reads through.

Requests go in turn to a partition of that broker and to one of another broker, which has nothing to do with the
reader: what the machine does to both when it has one more busy process is no difference between them.
"""

from __future__ import annotations

import subprocess
import sys
import time

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.batch import parse_header, split_batches
from tests.support.repo import REPO
from tests.support.requests import batch_of

COLD = TopicPartition("cold", 0)
SAME, OTHER = "same", "other"
SECONDS = 10.0
PAUSE_S = 0.0015
"""Between requests: about 500 a second, which no machine is busy with."""
FETCH_BYTES = 4 << 20
HOT_TOPICS_MAX = 20


def hot_beside_cold(address: str, end: int, rounds: int, seconds: float = SECONDS) -> dict[str, list[float]]:
    """p99 in milliseconds, alone and beside a consumer; offsets [0, end) of `COLD` are in the tier alone.

    Keys: `alone` (the reader's broker), `same` (the same, while it reads), `other` (the other one, meanwhile).
    """
    found: dict[str, list[float]] = {"alone": [], SAME: [], OTHER: []}
    with Client(address) as client:
        places = _hot_places(client)
        _p99_ms(client, places, 1.0)
        for _ in range(rounds):
            found["alone"].append(_p99_ms(client, places, seconds)[SAME])
            command = [sys.executable, "-m", "tests.benchmarks.hot_beside_cold", address, str(end)]
            reader = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE)
            try:
                assert reader.stdout is not None and reader.stdout.readline() == b"reading\n"
                for kind, value in _p99_ms(client, places, seconds).items():
                    found[kind].append(value)
            finally:
                reader.kill()
                reader.wait()
    return found


def _hot_places(client: Client) -> dict[str, TopicPartition]:
    """A partition of the broker that leads `COLD`, and one of another."""
    places: dict[str, TopicPartition] = {}
    for number in range(HOT_TOPICS_MAX):
        name = f"hot-{number}"
        client.create_topics([NewTopic(name, 1, 1)])
        kind = SAME if _leader(client, name) == _leader(client, COLD.topic) else OTHER
        places.setdefault(kind, TopicPartition(name, 0))
        if len(places) == 2:
            return places
    raise RuntimeError(f"no two of {HOT_TOPICS_MAX} topics have different leaders")


def _leader(client: Client, topic: str) -> int:
    deadline = time.monotonic() + 10
    while (leader := client.metadata([topic]).topics[topic].partitions[0].leader) < 0:
        assert time.monotonic() < deadline, f"{topic} has no leader"
        time.sleep(0.05)
    return leader


def _p99_ms(client: Client, places: dict[str, TopicPartition], seconds: float) -> dict[str, float]:
    batch = batch_of(b"x" * 1_000)
    taken: dict[str, list[float]] = {kind: [] for kind in places}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for kind, place in places.items():
            began = time.perf_counter()
            client.produce(place, batch)
            taken[kind].append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
    return {kind: sorted(times)[len(times) * 99 // 100] * 1_000 for kind, times in taken.items()}


def read_for_ever(address: str, end: int) -> None:
    """From the first offset to `end`, again and again; says so once the first records have come."""
    with Client(address) as client:
        offset, told = 0, False
        while True:
            for batch in split_batches(client.fetch(COLD, offset, max_bytes=FETCH_BYTES).records):
                offset = parse_header(batch).next_offset
            if not told:
                told = True
                print("reading", flush=True)
            offset = 0 if offset >= end else offset


if __name__ == "__main__":
    read_for_ever(sys.argv[1], int(sys.argv[2]))
