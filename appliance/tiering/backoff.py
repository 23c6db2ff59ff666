"""How long one partition's machine waits after failures, and what it says of them meanwhile. Pure."""

from __future__ import annotations

from appliance.base.randomness import Randomness
from appliance.tiering.limits import TieringLimits

DOUBLINGS_MAX = 20


class Backoff:
    """Doubles with each failure in a row up to `backoff_max_ms`, with jitter."""

    def __init__(self, limits: TieringLimits, randomness: Randomness) -> None:
        self.reason = ""
        """What failed last, and when it is tried again; empty when nothing has failed since."""
        self.until_ms = 0
        self._limits = limits
        self._randomness = randomness
        self._failures = 0

    def succeeded(self) -> None:
        self._failures, self.reason = 0, ""

    def failed(self, reason: str, now_ms: int) -> None:
        """Nothing is tried before `until_ms`."""
        longest = min(self._limits.backoff_max_ms, self._limits.backoff_ms << min(self._failures, DOUBLINGS_MAX))
        wait_ms = round(longest * self._randomness.uniform(0.5, 1.0))
        self._failures += 1
        self.until_ms = now_ms + wait_ms
        self.reason = f"{reason}; tried {self._failures} times, next in {wait_ms} ms"

    def ended(self, reason: str) -> None:
        """Nothing is tried any more."""
        self.reason = reason
