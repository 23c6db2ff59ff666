"""What of the local log shall go up next, and when the active segment is closed for it (U1). Pure."""

from __future__ import annotations

from bisect import bisect_right

from appliance.tiering.events import ClosedSegment, LogFacts

WAITING_SEGMENTS_MAX = 2
"""With so many closed segments waiting, time alone rolls no further one: a store outage must not mince the log."""


def roll_is_due(facts: LogFacts, tiered_end: int) -> bool:
    """Whether the active segment's oldest record has waited for `tiering.max.lag.ms`."""
    if not facts.copy_enabled or facts.active_first_append_ms is None:
        return False
    if facts.wall_ms - facts.active_first_append_ms < facts.max_lag_ms:
        return False
    waiting = len(facts.closed) - bisect_right(facts.closed, tiered_end, key=lambda segment: segment.next_offset)
    return waiting < WAITING_SEGMENTS_MAX


def next_upload(facts: LogFacts, tiered_end: int) -> ClosedSegment | str | None:
    """The first closed segment with base ≤ tiered end < end; the reason when it must wait."""
    found = bisect_right(facts.closed, tiered_end, key=lambda segment: segment.next_offset)
    if found == len(facts.closed):
        return None
    segment = facts.closed[found]
    if segment.next_offset > facts.last_stable_offset:
        return (
            f"segment [{segment.base_offset}, {segment.next_offset}) ends above the last stable offset "
            f"{facts.last_stable_offset}"
        )
    return segment
