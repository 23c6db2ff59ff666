"""What a reader of the tier does to the p99 of produce requests on the same broker.

In turn: alone, beside a consumer of tiered records, and beside a process that reads the same bytes from the store
without the broker. The last one shows what the machine does to the figure when it has one more busy process.
"""

from __future__ import annotations

import subprocess
import sys
import time

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.batch import parse_header, split_batches
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.names import partition_folder
from appliance.tiering.stores import open_store
from appliance.tiering.verify import read_manifests
from tests.support.repo import REPO
from tests.support.requests import batch_of

COLD = TopicPartition("cold", 0)
HOT = TopicPartition("hot", 0)
SECONDS = 10.0
PAUSE_S = 0.002
"""Between requests: about 400 a second, which no machine is busy with."""
FETCH_BYTES = 4 << 20
CHUNK_BYTES = 1 << 20


def hot_beside_cold(
    address: str, store_url: str, end: int, rounds: int, seconds: float = SECONDS
) -> dict[str, list[float]]:
    """p99 in milliseconds of produce requests; offsets [0, end) of `COLD` are in the tier alone."""
    found: dict[str, list[float]] = {"alone": [], "consumer": [], "bare": []}
    with Client(address) as client:
        client.create_topics([NewTopic(HOT.topic, 1, 1)])
        for _ in range(rounds):
            found["alone"].append(_p99_ms(client, seconds))
            for kind, arguments in (("consumer", (address, str(end))), ("bare", (store_url, "bare"))):
                command = [sys.executable, "-m", "tests.benchmarks.hot_beside_cold", *arguments]
                reader = subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE)
                try:
                    assert reader.stdout is not None and reader.stdout.readline() == b"reading\n"
                    found[kind].append(_p99_ms(client, seconds))
                finally:
                    reader.kill()
                    reader.wait()
    return found


def _p99_ms(client: Client, seconds: float) -> float:
    batch = batch_of(b"x" * 1_000)
    taken = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        client.produce(HOT, batch)
        taken.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    return sorted(taken)[len(taken) * 99 // 100] * 1_000


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


def read_bare_for_ever(store_url: str) -> None:
    """The same objects by ranged GETs."""
    store = open_store(store_url)
    items = []
    for manifest in read_manifests(store):
        folder = partition_folder(manifest.topic_id, manifest.partition)
        items += [(folder + item.name, item) for item in manifest.items if isinstance(item, SegmentItem)]
    print("reading", flush=True)
    while True:
        for name, item in items:
            for position in range(0, item.data_length, CHUNK_BYTES):
                store.get(name, start=position, length=CHUNK_BYTES)


if __name__ == "__main__":
    if sys.argv[2] == "bare":
        read_bare_for_ever(sys.argv[1])
    read_for_ever(sys.argv[1], int(sys.argv[2]))
