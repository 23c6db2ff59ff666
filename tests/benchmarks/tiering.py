"""`make bench-tiering`: uploads beside a bare boto3 upload, and cold reads beside bare ranged GETs, of the same bytes.

    python -m tests.benchmarks.tiering [--quick] [--rounds N] [--print] [--lake]

The object store is moto's S3 server in a process of its own on this machine, so it is a part of every figure: ratios
count, rates do not. Uploads: the manager, its machines and helper threads over real logs, four partitions side by
side, against four threads with `put_object`. Cold reads: a consumer of raw batches through a broker process whose
disk has let go of everything, against ranged GETs of `tiering.chunk.bytes`, both one after the other. Each upload runs
in a process of its own, so that its peak memory is its own; runs of the two kinds go in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig
from appliance.base.ids import TopicPartition
from appliance.base.processes import BrokerSettings, ControllerSettings
from appliance.base.randomness import SystemRandomness
from appliance.client.client import Client
from appliance.client.results import NewTopic
from appliance.records.batch import parse_header, split_batches
from appliance.server.background import LoopBackground
from appliance.tiering.manager import TieringManager
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.names import partition_folder
from appliance.tiering.s3 import S3Store
from appliance.tiering.verify import read_manifests
from tests.benchmarks.hot_beside_cold import OTHER, SAME, hot_beside_cold
from tests.benchmarks.lake import QUICK_ROWS, ROWS, lake_rates, lake_table
from tests.benchmarks.report import with_section
from tests.benchmarks.run import DOCUMENT, output_of, say
from tests.support.broker_process import PartProcess
from tests.support.moto_server import MotoServer
from tests.support.repo import REPO
from tests.support.requests import batch_of
from tests.support.tiering_kit import Hosted

BEGIN = "<!-- tiering figures: written by `make bench-tiering`, from here -->"
END = "<!-- tiering figures: to here -->"
PARTITIONS = 4
PARTITION_MIB = 128
SEGMENT_MIB, QUICK_SEGMENT_MIB = (16, 64), (16,)
ROUNDS, QUICK_ROUNDS = 5, 1
COLD_MIB, QUICK_COLD_MIB = 192, 48
CHUNK_BYTES = 1 << 20
BATCH_BYTES = 512 << 10
GIVE_UP_S = 120.0
FETCH_BYTES = 4 << 20
KINDS = ("ours", "bare")
Uploading = Callable[[], dict[str, int]]
"""Uploads all of it; returns how many requests of each kind that took."""


class CountingStore(S3Store):
    """Counts the requests that it sends."""

    def __init__(self, bucket: str, options: dict[str, Any]) -> None:
        super().__init__(bucket, "", options)
        self.requests: Counter[str] = Counter()
        for name in ("create_from", "swap", "get", "get_if_changed", "delete", "list"):
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[name] += 1
            return call(*arguments, **options)

        return counted


def logs_in(folder: Path, segment_mib: int) -> list[Hosted]:
    """Logs with closed segments of that size, and an active one with a record."""
    clock = SystemClock()
    hosted = [
        Hosted(folder, clock, partition=number, segment_bytes=(segment_mib << 20) + BATCH_BYTES)
        for number in range(PARTITIONS)
    ]
    for log in hosted:
        for _ in range(PARTITION_MIB // segment_mib):
            for _ in range((segment_mib << 20) // BATCH_BYTES):
                log.append_batch(batch_of(os.urandom(BATCH_BYTES - 200)))
            log.log.roll(clock.now_ms())
        log.append([b"active"])
    return hosted


def upload_ours(options: dict[str, Any], bucket: str, hosted: list[Hosted]) -> Uploading:
    loop = asyncio.new_event_loop()
    background = LoopBackground(loop, threads=PARTITIONS + 4, name="tiering")
    store = CountingStore(bucket, options)
    store.create("first", b"")
    store.get("first")
    store.requests.clear()
    config = BrokerConfig({"restore.offset.gap": "0"})
    manager = TieringManager(store, background, SystemClock(), SystemRandomness(), config)
    for one in hosted:
        manager.partition_leading(one)

    async def run() -> None:
        deadline = time.monotonic() + GIVE_UP_S
        ends = [one.log.active_segment.base_offset for one in hosted]
        while [row.tiered_end for row in manager.status()] != ends:
            assert time.monotonic() < deadline, [row.reason for row in manager.status()]
            manager.tick()
            await asyncio.sleep(0.01)

    def all_of_it() -> dict[str, int]:
        loop.run_until_complete(run())
        manager.close()
        background.close()
        return dict(store.requests)

    return all_of_it


def upload_bare(options: dict[str, Any], bucket: str, hosted: list[Hosted]) -> Uploading:
    import boto3

    client = boto3.client("s3", **options)
    client.put_object(Bucket=bucket, Key="first", Body=b"")
    client.get_object(Bucket=bucket, Key="first")["Body"].read()

    def put(one: Hosted) -> None:
        for segment in one.log.segments[:-1]:
            with segment.path.open("rb") as body:
                client.put_object(Bucket=bucket, Key=f"{one.partition}/{segment.base_offset}", Body=body)

    def all_of_it() -> dict[str, int]:
        threads = [threading.Thread(target=put, args=(one,)) for one in hosted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"put": sum(len(one.log.segments) - 1 for one in hosted)}

    return all_of_it


def upload(kind: str, options: dict[str, Any], bucket: str, segment_mib: int) -> dict[str, Any]:
    """In a process of its own: one upload of everything, with clients that have sent their first requests."""
    folder = Path(tempfile.mkdtemp(prefix="bench-tiering-"))
    try:
        hosted = logs_in(folder, segment_mib)
        all_of_it = (upload_ours if kind == "ours" else upload_bare)(options, bucket, hosted)
        before_mib = memory_mib(again=True)
        began, cpu = time.monotonic(), time.process_time()
        requests = all_of_it()
        return {
            "seconds": time.monotonic() - began,
            "cpu_seconds": time.process_time() - cpu,
            "mib": PARTITIONS * PARTITION_MIB,
            "memory_mib": memory_mib() - before_mib,
            "requests": requests,
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def memory_mib(*, again: bool = False) -> float:
    """The most memory that this process has had so far; `again` counts anew from now on.

    Not `ru_maxrss`, which begins with what the process had that started this one.
    """
    if again:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) / 1_024


def measured_upload(kind: str, moto: MotoServer, segment_mib: int) -> dict[str, Any]:
    import boto3

    bucket = moto.bucket()
    arguments = json.dumps({"kind": kind, "options": moto.client_options, "bucket": bucket, "segment_mib": segment_mib})
    command = [sys.executable, "-m", "tests.benchmarks.tiering", "--child", arguments]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=GIVE_UP_S * 2, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    # moto keeps objects in memory.
    room = boto3.resource("s3", **moto.client_options).Bucket(bucket)
    room.objects.all().delete()
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# ---------------------------------------------------------------------------------------------------------- cold reads


def cold_reads(moto: MotoServer, mib: int, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """MiB a second of both kinds, and the p99 of produce requests alone and beside readers."""
    folder = Path(tempfile.mkdtemp(prefix="bench-tiering-"))
    bucket = moto.bucket()
    store_url = f"s3://{bucket}"
    saved = {name: os.environ.get(name) for name in moto.environment}
    os.environ.update(moto.environment)
    properties = {
        "tiering.task.interval.ms": "50",
        "log.retention.check.interval.ms": "200",
        "tiering.chunk.bytes": str(CHUNK_BYTES),
        # Each round is cold: what one has read is not kept for the next.
        "tiering.chunk.cache.bytes": str(8 * CHUNK_BYTES),
        "log.dir.min.free.bytes": "1",
    }
    parts: list[PartProcess] = []
    try:
        parts.append(PartProcess(ControllerSettings(100, "127.0.0.1", 0, store_url, properties), folder / "c.log"))
        parts[0].wait_until_ready()
        for broker_id in (1, 2):
            settings = BrokerSettings(
                broker_id=broker_id,
                host="127.0.0.1",
                port=0,
                advertised_host="127.0.0.1",
                data_dir=folder / f"broker-{broker_id}",
                controllers=[parts[0].address],
                object_store=store_url,
                properties=properties,
            )
            parts.append(PartProcess(settings, folder / f"b{broker_id}.log"))
            parts[-1].wait_until_ready()
        with Client(parts[1].address) as client:
            end = _filled(client, mib)
            store = S3Store(bucket, "", moto.client_options)
            rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for _ in range(rounds):
                rates["ours"].append(_read_through_broker(client, end))
                rates["bare"].append(_read_bare(store))
            return rates, hot_beside_cold(parts[1].address, end, rounds)
    finally:
        for part in reversed(parts):
            part.kill()
        for name, value in saved.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        shutil.rmtree(folder, ignore_errors=True)


PLACE = TopicPartition("cold", 0)


def _filled(client: Client, mib: int) -> int:
    """Produce, and wait until the disk has let go of it; returns the first local offset."""
    configs = {"segment.bytes": str(16 << 20), "retention.ms": "-1", "local.retention.bytes": "1"}
    client.create_topics([NewTopic(PLACE.topic, 1, 1, configs=configs)])
    for _ in range((mib << 20) // BATCH_BYTES):
        client.produce(PLACE, batch_of(os.urandom(BATCH_BYTES - 200)))
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        local = client.list_offsets({PLACE: -4})[PLACE].offset
        if local >= ((mib - 32) << 20) // BATCH_BYTES:
            return local
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {local} batches have left the disk")
        time.sleep(0.1)


def _read_through_broker(client: Client, end: int) -> float:
    began, size, offset = time.monotonic(), 0, 0
    while offset < end:
        found = client.fetch(PLACE, offset, max_bytes=FETCH_BYTES)
        for batch in split_batches(found.records):
            offset = parse_header(batch).next_offset
            size += len(batch)
    return size / (time.monotonic() - began) / (1 << 20)


def _read_bare(store: S3Store) -> float:
    items = []
    for manifest in read_manifests(store):
        folder = partition_folder(manifest.topic_id, manifest.partition)
        items += [(folder + item.name, item) for item in manifest.items if isinstance(item, SegmentItem)]
    began, size = time.monotonic(), 0
    for name, item in items:
        for position in range(0, item.data_length, CHUNK_BYTES):
            size += len(store.get(name, start=position, length=CHUNK_BYTES).data)
    return size / (time.monotonic() - began) / (1 << 20)


# -------------------------------------------------------------------------------------------------------------- report


def section(figures: dict[str, Any]) -> str:
    rows = []
    for segment_mib, kinds in figures["uploads"].items():
        ours, bare = (kinds[kind] for kind in KINDS)
        rate = {kind: statistics.median(run["mib"] / run["seconds"] for run in kinds[kind]) for kind in KINDS}
        per_gib = {
            kind: statistics.median(run["cpu_seconds"] * 1_024 / run["mib"] for run in kinds[kind]) for kind in KINDS
        }
        requests = sum(ours[0]["requests"].values()) * 1_024 / ours[0]["mib"]
        memory = max(run["memory_mib"] for run in ours), max(run["memory_mib"] for run in bare)
        rows.append(
            f"| upload, segments of {segment_mib} MiB | {rate['ours']:.0f} MiB/s | {rate['bare']:.0f} MiB/s "
            f"| {rate['ours'] / rate['bare']:.2f} | {per_gib['ours']:.2f} / {per_gib['bare']:.2f} s "
            f"| {memory[0]:.0f} / {memory[1]:.0f} MiB | {requests:.0f} |"
        )
    cold = {kind: statistics.median(figures["cold"][kind]) for kind in KINDS}
    rows.append(
        f"| cold read | {cold['ours']:.0f} MiB/s | {cold['bare']:.0f} MiB/s | {cold['ours'] / cold['bare']:.2f} | | | |"
    )
    rows.append(hot_row(figures["hot"]))
    head = "| | ours | bare | ratio | CPU per GiB | memory above the start | requests per GiB |"
    told = f"Medians of {figures['rounds']} rounds; {figures['date']}, {figures['commit']}."
    return "\n".join([BEGIN, "", head, "|---|---|---|---|---|---|---|", *rows, "", told, "", END])


HOT_ROW = "| p99 of hot produce"


def hot_row(hot: dict[str, list[float]]) -> str:
    alone, same, other = (statistics.median(hot[kind]) for kind in ("alone", SAME, OTHER))
    ratio = statistics.median(mine / its for mine, its in zip(hot[SAME], hot[OTHER], strict=True))
    return (
        f"{HOT_ROW}, the reader's broker and another ({alone:.1f} ms without a reader) | {same:.1f} ms "
        f"| {other:.1f} ms | {ratio:.2f} | | | |"
    )


LAKE_BEGIN = "<!-- lake figures: written by `make bench-tiering`, from here -->"
LAKE_END = "<!-- lake figures: to here -->"


def lake_section(rows: int, rounds: int) -> str:
    """Measured now."""
    rates = lake_rates(rows, rounds)
    say(f"  lake: {rates}")
    told = f"Medians of {rounds} rounds of {rows:,} records of about 140 bytes in one process; "
    told += f"{time.strftime('%Y-%m-%d', time.gmtime())}, {output_of('git', 'rev-parse', '--short=10', 'HEAD')}; "
    told += "other work shared the machine, which CPU time hardly shows."
    return "\n".join([LAKE_BEGIN, "", *lake_table(rates), "", told, "", LAKE_END])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make bench-tiering", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little data, one round")
    parser.add_argument("--rounds", type=int, default=0, help=f"of each kind ({ROUNDS})")
    parser.add_argument("--print", action="store_true", help="print the section instead of writing the document")
    parser.add_argument("--lake", action="store_true", help="only lake output")
    parser.add_argument("--hot", action="store_true", help="only hot produce beside a cold reader")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(upload(**json.loads(chosen.child))))
        return 0
    if chosen.hot:
        with MotoServer() as moto:
            cold, hot = cold_reads(moto, QUICK_COLD_MIB, chosen.rounds or ROUNDS)
        say(f"  {cold} {hot}")
        row = hot_row(hot)
        lines = [row if line.startswith(HOT_ROW) else line for line in DOCUMENT.read_text().splitlines()]
        print(row) if chosen.print else DOCUMENT.write_text("\n".join(lines) + "\n")
        return 0
    rounds = chosen.rounds or (QUICK_ROUNDS if chosen.quick else ROUNDS)
    lake = lake_section(QUICK_ROWS if chosen.quick else ROWS, rounds)
    if chosen.lake:
        if chosen.print:
            print(lake)
        else:
            DOCUMENT.write_text(with_section(DOCUMENT.read_text(), lake, LAKE_BEGIN, LAKE_END))
        return 0
    uploads: dict[int, dict[str, list[dict[str, Any]]]] = {}
    with MotoServer() as moto:
        for segment_mib in QUICK_SEGMENT_MIB if chosen.quick else SEGMENT_MIB:
            kinds = uploads[segment_mib] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for kind in KINDS:
                    run = measured_upload(kind, moto, segment_mib)
                    kinds[kind].append(run)
                    say(f"  upload {segment_mib} MiB {number + 1}/{rounds} {kind}: {run}")
        cold, hot = cold_reads(moto, QUICK_COLD_MIB if chosen.quick else COLD_MIB, rounds)
        say(f"  cold: {cold}")
        say(f"  hot: {hot}")
    figures = {
        "uploads": uploads,
        "cold": cold,
        "hot": hot,
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": output_of("git", "rev-parse", "--short=10", "HEAD"),
    }
    if chosen.print:
        print(section(figures))
        print(lake)
    else:
        text = with_section(DOCUMENT.read_text(), section(figures), BEGIN, END)
        DOCUMENT.write_text(with_section(text, lake, LAKE_BEGIN, LAKE_END))
        say(f"written: {DOCUMENT.relative_to(REPO)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
