"""`make bench-spark`: how fast `format("appliance")` reads, hot and tiered, beside Spark's own Parquet reader.

python -m tests.benchmarks.spark [--quick] [--print]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from appliance.base.ids import TopicPartition
from appliance.client.client import Client
from spark.session import spark_session
from tests.benchmarks.figures import run_client
from tests.benchmarks.report import spread, with_section
from tests.benchmarks.run import DOCUMENT, machine_facts, say
from tests.benchmarks.servers import Appliance, BenchmarkedServer, SideBySide

BEGIN = "<!-- spark figures: written by `make bench-spark`, from here -->"
END = "<!-- spark figures: to here -->"
TOPIC, PARTITIONS = "rows", 2
CONFIG = {"segment.bytes": str(64 << 20), "tiering.max.lag.ms": "5000", "retention.ms": "-1"}
FRAMES, QUICK_FRAMES = 4_000, 1_000
ROUNDS, QUICK_ROUNDS = 5, 2
RECORDS_PER_FRAME = 600
LATEST_TIERED = -5
TIERED_TIMEOUT_S = 180


def tiered_ends(server: BenchmarkedServer, frames: int) -> dict[int, int]:
    """Wait until all that was written lies in the object store; the end offset per partition."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    deadline = time.monotonic() + TIERED_TIMEOUT_S
    with Client(server.bootstrap_servers) as client:
        while time.monotonic() < deadline:
            found = client.list_offsets(dict.fromkeys(partitions, LATEST_TIERED))
            ends = {tp.partition: result.offset + 1 for tp, result in found.items()}
            if sum(ends.values()) == frames * RECORDS_PER_FRAME:
                return ends
            time.sleep(0.2)
    raise TimeoutError(f"not tiered within {TIERED_TIMEOUT_S} s: {ends}")


def frame_of(session: SparkSession, server: BenchmarkedServer, tier: str, ends: dict[int, int]) -> DataFrame:
    reader = session.read.format("appliance").option("kafka.bootstrap.servers", server.bootstrap_servers)
    ending = json.dumps({TOPIC: {str(partition): end for partition, end in ends.items()}})
    return reader.option("subscribe", TOPIC).option("tier", tier).option("endingOffsets", ending).load()


def seconds_to_read(frame: DataFrame, records: int) -> float:
    began = time.monotonic()
    row = frame.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()[0]
    took = time.monotonic() - began
    if (row["records"], row["bytes"]) != (records, records * 100):
        raise AssertionError(f"{row} instead of {records} records of 100 bytes")
    return took


def table(records: int, times: dict[str, list[float]]) -> list[str]:
    lines = ["| | million records/s | MB/s of values | time, to Parquet's |", "|---|---|---|---|"]
    for name, seconds in times.items():
        rates = spread([records / took / 1e6 for took in seconds], 2)
        speeds = spread([records * 100 / took / 1e6 for took in seconds], 0)
        ratios = spread([took / base for took, base in zip(seconds, times["Parquet"], strict=True)], 2)
        lines.append(f"| {name} | {rates} | {speeds} | {ratios} |")
    return lines


def measure(server: BenchmarkedServer, frames: int, rounds: int, folder: Path) -> tuple[int, dict[str, list[float]]]:
    server.create_topic(TOPIC, PARTITIONS, CONFIG)
    load = ("--topic", TOPIC, "--partitions", str(PARTITIONS), "--connections", "2", "--depth", "4")
    run_client(server, "produce_load", (*load, "--records", str(RECORDS_PER_FRAME), "--requests", str(frames)))
    ends = tiered_ends(server, frames)
    records = sum(ends.values())
    session = spark_session("benchmark", cores=2)
    try:
        parquet = str(folder / "rows.parquet")
        frame_of(session, server, "tiered", ends).write.option("compression", "none").parquet(parquet)
        readers = {
            "hot": lambda: frame_of(session, server, "hot", ends),
            "tiered": lambda: frame_of(session, server, "tiered", ends),
            "Parquet": lambda: session.read.parquet(parquet),
        }
        times: dict[str, list[float]] = {name: [] for name in readers}
        for number in range(-1, rounds):  # the first round warms all three
            for name, reader in readers.items():
                took = seconds_to_read(reader(), records)
                say(f"  {name} {number + 1}/{rounds}: {records / took / 1e6:.2f} million records/s")
                if number >= 0:
                    times[name].append(took)
    finally:
        session.stop()
    return records, times


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data and few rounds: not to be quoted")
    parser.add_argument("--print", action="store_true", help="print the section instead of writing the document")
    chosen = parser.parse_args(arguments)
    frames, rounds = (QUICK_FRAMES, QUICK_ROUNDS) if chosen.quick else (FRAMES, ROUNDS)
    began = time.time()
    with SideBySide(Appliance) as servers, tempfile.TemporaryDirectory(prefix="benchmark-spark-") as folder:
        records, times = measure(servers[0], frames, rounds, Path(folder))
    lines = [BEGIN, ""]
    if chosen.quick:
        lines += ["**A quick run while developing: too few rounds to quote.**", ""]
    lines += [f"- {name}: {fact}" for name, fact in machine_facts(rounds, began)]
    lines += [
        f"- Data: {records:,} records of 100 B in {PARTITIONS} partitions; Spark `local[2]` beside the broker",
        "",
    ]
    text = "\n".join([*lines, *table(records, times), "", END])
    if chosen.print:
        print(text)
    else:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(), text, BEGIN, END))
        say(f"written: {DOCUMENT.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
