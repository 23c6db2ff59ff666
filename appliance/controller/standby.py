"""Whether a controller that is not the active one should claim (rule C1). Pure.

Claims are safe at any time; this only keeps controllers from taking the epoch from each other without need.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StandbyWatch:
    """Listens to the pings of one active controller. Times are of the monotonic clock."""

    takeover_ms: int
    heard_ms: int
    """When it answered last, or when the watch began."""

    def answered(self, now_ms: int) -> None:
        """It said that it is active."""
        self.heard_ms = now_ms

    def should_claim(self, now_ms: int, *, refused: bool) -> bool:
        """After a ping without that answer. `refused`: nobody listens at its address."""
        return refused or now_ms - self.heard_ms >= self.takeover_ms
