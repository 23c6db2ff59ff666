"""When tiering tries what it does: times only, on which no safety rule rests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TieringLimits:
    """Times that decide when something is tried (milliseconds); none of them matters for safety."""

    upload_timeout_ms: int = 30_000
    upload_min_bytes_per_second: int = 4 << 20
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    delete_delay_ms: int = 3_600_000
    sweep_interval_ms: int = 7 * 86_400_000
    retention_interval_ms: int = 300_000
