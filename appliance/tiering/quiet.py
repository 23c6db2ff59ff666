"""How long a partition needs no look, so that thousands of idle ones cost a comparison each and nothing else.

What could end the rest is either the time (a roll, retention, a sweep), which is worked out here, or a change of the
log or of its configs, which `Quiet.lasts` compares by identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.tiering.events import LogFacts

if TYPE_CHECKING:
    from appliance.tiering.manager import TierablePartition

NEVER_MS = 1 << 62


class Quiet:
    """A promise that nothing is to be done with a partition for a while, and what it rests upon."""

    __slots__ = ("_active", "_cleaned_offset", "_config", "_log_start", "_until_ms")

    def __init__(self, hosted: TierablePartition, until_ms: int) -> None:
        log = hosted.log
        self._active = log.segments[-1]
        self._config = hosted.config
        self._log_start = log.log_start_offset
        self._cleaned_offset = log.cleaned_offset
        self._until_ms = until_ms

    def lasts(self, hosted: TierablePartition, now_ms: int) -> bool:
        """Whether it still holds. `now_ms` is the monotonic clock."""
        log = hosted.log
        return (
            now_ms < self._until_ms
            and log.segments[-1] is self._active
            and log.log_start_offset == self._log_start
            and log.cleaned_offset == self._cleaned_offset
            and hosted.config is self._config
        )


def log_rests_ms(hosted: TierablePartition, facts: LogFacts) -> int:
    """How long time alone makes neither a roll nor a deletion due in this log."""
    rests_ms = NEVER_MS
    if facts.copy_enabled:
        begun_ms = facts.active_first_append_ms
        rests_ms = facts.max_lag_ms if begun_ms is None else begun_ms + facts.max_lag_ms - facts.wall_ms
    oldest_ms = hosted.log.segments[0].max_timestamp
    if oldest_ms >= 0:
        for kept_ms in (facts.retention_ms, hosted.config.effective_local_retention_ms):
            if kept_ms >= 0:
                rests_ms = min(rests_ms, oldest_ms + kept_ms + 1 - facts.wall_ms)
    return rests_ms
