"""When tiering tries what it does; no safety rule rests on any of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TieringLimits:
    """Times (milliseconds) and counts that decide when something is tried; none of them matters for safety."""

    upload_timeout_ms: int = 30_000
    upload_min_bytes_per_second: int = 4 << 20
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    delete_delay_ms: int = 3_600_000
    sweep_interval_ms: int = 7 * 86_400_000
    retention_interval_ms: int = 300_000
    merge_min_age_ms: int = 6 * 3_600_000
    """How old small neighbours in the tier must be before they become one object; below 0: they never do."""
    merge_min_objects: int = 8

    def time_for(self, size_bytes: int) -> int:
        """The deadline of a request that moves so many bytes (milliseconds)."""
        return self.upload_timeout_ms + size_bytes * 1_000 // self.upload_min_bytes_per_second
