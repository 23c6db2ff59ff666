"""A partition's log as the tiering machine sees it, for tests without a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from appliance.tiering.events import LogFacts


@dataclass(frozen=True)
class FakeSegment:
    base_offset: int
    next_offset: int
    size_bytes: int = 100
    max_timestamp: int = 0


def closed(*bounds: int, size_bytes: int = 100) -> list[FakeSegment]:
    """Adjoining closed segments between the given offsets."""
    return [FakeSegment(a, b, size_bytes, b * 10) for a, b in pairwise(bounds)]


def log_facts(segments: Sequence[FakeSegment] = (), *, active_records: int = 0, **changes: Any) -> LogFacts:
    """A log of these closed segments and an active one of `active_records`; nothing ever expires."""
    active_base = segments[-1].next_offset if segments else changes.get("local_log_start_offset", 0)
    first = segments[0].base_offset if segments else active_base
    end = active_base + active_records
    values: dict[str, Any] = {
        "wall_ms": 1_000_000,
        "log_start_offset": first,
        "local_log_start_offset": first,
        "log_end_offset": end,
        "last_stable_offset": end,
        "closed": segments,
        "active_base_offset": active_base,
        "active_bytes": active_records,
        "active_first_append_ms": None,
        "retention_ms": -1,
        "retention_bytes": -1,
        "max_lag_ms": 3_600_000,
    }
    return LogFacts(**{**values, **changes})
