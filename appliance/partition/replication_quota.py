"""How fast throttled replicas are copied (KIP-73). Pure.

What has moved is owed and paid off at the rate; while anything is owed, nothing more moves. So in any time no more than
rate × time moves, and one answer beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

UNLIMITED = (1 << 63) - 1
"""The rate by default."""
LOOK_AGAIN_MS = 1_000
"""The longest wait: the rate may have been altered meanwhile."""
SHORTEST_WAIT_MS = 5
"""A clock of milliseconds cannot wait more finely and get on."""
EVERY_REPLICA = ("*",)


def is_listed(throttled_replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether `*.replication.throttled.replicas` of a topic names this partition's replica on this broker."""
    return throttled_replicas == EVERY_REPLICA or f"{partition}:{broker_id}" in throttled_replicas


@dataclass(slots=True)
class ReplicationQuota:
    """One direction of one broker. Rates are bytes a second, given anew each time."""

    _owed: int = 0
    """In thousandths of a byte, so that a millisecond pays off a whole number."""
    _at_ms: int = 0

    def moved(self, size: int, rate: int, now_ms: int) -> None:
        """So many bytes of throttled replicas were copied."""
        self._pay(rate, now_ms)
        self._owed += size * 1_000

    def wait_ms(self, rate: int, now_ms: int) -> int:
        """How long nothing may be copied; 0: now."""
        if rate >= UNLIMITED:
            self._owed = 0
            return 0
        self._pay(rate, now_ms)
        if rate <= 0:
            return LOOK_AGAIN_MS
        if not self._owed:
            return 0
        return min(max(-(-self._owed // rate), SHORTEST_WAIT_MS), LOOK_AGAIN_MS)

    def _pay(self, rate: int, now_ms: int) -> None:
        self._owed = max(0, self._owed - max(0, now_ms - self._at_ms) * max(0, rate))
        self._at_ms = now_ms
