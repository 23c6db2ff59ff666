"""What an append costs in the log alone: nanoseconds of CPU per `stage` and per `write_staged`.

    python -m tests.benchmarks.log_append [--rounds N] [--profile]

The budget: about 2 microseconds per staged batch of one record. A write's cost is mostly the kernel's.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from appliance.base.clock import SystemClock
from appliance.base.config import BrokerConfig, topic_config
from appliance.base.disk import SystemDisk
from appliance.base.ids import TopicPartition
from appliance.log.partition_log import PartitionLog
from appliance.records.batch import BatchHeader, parse_header
from appliance.records.builder import build_batch

STAGES_PER_ROUND = 20_000


def open_log(directory: Path) -> PartitionLog:
    config = topic_config({}, BrokerConfig({}))
    return PartitionLog(directory, TopicPartition("bench", 0), uuid.uuid4(), config, SystemClock(), SystemDisk())


def batches(count: int, *, value_bytes: int, idempotent: bool) -> list[tuple[memoryview, BatchHeader]]:
    now_ms = SystemClock().now_ms()
    made = []
    for number in range(count):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if idempotent else {}
        view = memoryview(bytearray(build_batch([(now_ms, None, bytes(value_bytes), ())], **producer)))
        made.append((view, parse_header(view)))
    return made


def measure(log: PartitionLog, made: list[tuple[memoryview, BatchHeader]], per_write: int) -> tuple[float, float]:
    """(ns per stage, ns per write_staged), of this thread's CPU."""
    now_ms = SystemClock().now_ms()
    stage, write, check = log.stage, log.write_staged, log.producer_state.check
    staging = writing = 0
    for start in range(0, len(made), per_write):
        group = made[start : start + per_write]
        begin = time.thread_time_ns()
        for view, header in group:
            if header[9] >= 0 and check(header) is not None:
                raise AssertionError("a batch is out of sequence")
            stage(view, header, 3, now_ms)
        between = time.thread_time_ns()
        write()
        writing += time.thread_time_ns() - between
        staging += between - begin
    # What the clock itself costs, twice per group.
    begin = time.thread_time_ns()
    for _ in range(1000):
        time.thread_time_ns()
    clock = (time.thread_time_ns() - begin) / 1000
    groups = len(made) / per_write
    return staging / len(made) - clock / per_write, writing / groups - clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    print(f"{'batches':>24} {'per write':>9} {'ns/stage':>9} {'ns/write':>9}   best of {arguments.rounds}")
    for idempotent in (False, True):
        for per_write in (1, 8, 64):
            results = []
            for _ in range(arguments.rounds):
                folder = Path(tempfile.mkdtemp(prefix="log-append-"))
                try:
                    log = open_log(folder / "bench-0")
                    made = batches(STAGES_PER_ROUND, value_bytes=100, idempotent=idempotent)
                    if arguments.profile:
                        with cProfile.Profile() as profile:
                            measure(log, made, per_write)
                        pstats.Stats(profile).sort_stats("tottime").print_stats(8)
                    else:
                        results.append(measure(log, made, per_write))
                    log.close(clean=False)
                finally:
                    shutil.rmtree(folder)
            if results:
                kind = "100 B, idempotent" if idempotent else "100 B"
                stage_ns, write_ns = min(r[0] for r in results), min(r[1] for r in results)
                print(f"{kind:>24} {per_write:>9} {stage_ns:>9.0f} {write_ns:>9.0f}")


if __name__ == "__main__":
    main()
