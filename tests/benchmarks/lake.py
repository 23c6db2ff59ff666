"""Lake output in rows a second of CPU: one worker, one partition, from a tier in a folder to files in it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.tiering.lake.spec import LakeSpec
from tests.support.laked import AT_ONCE, Laked

ROWS, QUICK_ROWS = 400_000, 40_000
ROWS_PER_BATCH = 500
SCHEMA = "id bigint, name string, price double, tags array<string>, at timestamp"
KINDS: dict[str, LakeSpec] = {
    "JSON, columns given": replace(AT_ONCE, schema=SCHEMA, partition_by=("day",)),
    "JSON, columns inferred": replace(AT_ONCE, partition_by=("day",)),
    "raw": replace(AT_ONCE, value_format="raw", partition_by=("day",)),
}


def value(number: int) -> bytes:
    """About 140 bytes."""
    row = {"id": number, "name": f"user {number % 10_000}", "price": number / 8, "tags": ["a", "b"]}
    return json.dumps({**row, "at": "2026-01-01T00:00:00.125Z", "note": "x" * 24}).encode()


def lake_rates(rows: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Rows a second of CPU and of time, for each kind of values."""
    folder = Path(tempfile.mkdtemp(prefix="bench-lake-"))
    try:
        lake = Laked(folder, retention_ms=-1, segment_bytes=64 << 20)
        for first in range(0, rows, ROWS_PER_BATCH):
            lake.hosted.append([value(n) for n in range(first, first + ROWS_PER_BATCH)])
        lake.hosted.log.roll(lake.clock.now_ms())
        lake.tier()
        rates: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind, spec in KINDS.items():
                rates[kind].append(_one(lake, spec, rows))
        return rates
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _one(lake: Laked, spec: LakeSpec, rows: int) -> dict[str, float]:
    began, cpu = time.monotonic(), time.process_time()
    ledger = lake.worker().work(replace(spec, max_bytes=1 << 40))
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    if ledger.rows != rows or ledger.dead:
        raise RuntimeError(f"{ledger.rows} rows and {ledger.dead} dead letters of {rows} records")
    size = sum(file.size for file in ledger.files)
    for row in list(lake.store.inner.list("lake/")):
        lake.store.inner.delete(row.name)
    return {"rows_per_cpu_second": rows / cpu_seconds, "rows_per_second": rows / seconds, "mib": size / (1 << 20)}


def lake_table(rates: dict[str, list[dict[str, float]]]) -> list[str]:
    """Rows of the document; medians."""

    def median(runs: list[dict[str, Any]], name: str) -> float:
        return float(sorted(run[name] for run in runs)[len(runs) // 2])

    return [
        "| lake output | rows per second of CPU | rows per second |",
        "|---|---|---|",
        *(
            f"| {kind} | {median(runs, 'rows_per_cpu_second'):,.0f} | {median(runs, 'rows_per_second'):,.0f} |"
            for kind, runs in rates.items()
        ),
    ]
