"""A topic with one replica pays nothing for replication: so many calls a batch, and no more."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from appliance.records.batch import parse_header
from appliance.records.builder import build_batch
from tests.unit.broker_actors.test_partition_host import World

BATCHES = 200
CALLS_PER_BATCH = 14
"""As it was when every partition had one replica; two of them are the failing disk of the test itself."""
NOW_AND_THEN = 20
"""Entries of the sparse indexes."""


def test_appending_to_the_only_replica_takes_no_more_calls_than_before(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create()
    hosted = world.partition()
    batches = [memoryview(bytearray(build_batch([(1_700_000_000_000, b"k", b"x", [])]))) for _ in range(BATCHES)]
    headers = [parse_header(batch) for batch in batches]
    now_ms = world.clock.now_ms()
    hosted.append(batches[0], headers[0], now_ms)
    world.host.end_of_tick()
    assert hosted.plain and hosted.followed_by == []
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        for batch, header in zip(batches[1:], headers[1:], strict=True):
            hosted.append(batch, header, now_ms)
            world.host.end_of_tick()
    finally:
        sys.setprofile(None)
    assert sum(calls.values()) <= CALLS_PER_BATCH * BATCHES + NOW_AND_THEN, calls
    assert hosted.high_watermark == BATCHES
