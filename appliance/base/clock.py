"""The clock seam. Times are whole milliseconds."""

from __future__ import annotations

import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What time it is; passed in by the constructor, so that a simulation can own it."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch. May jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never goes back and counts the time the host was suspended."""


class SystemClock:
    """The clock of this host."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        # CLOCK_BOOTTIME, not CLOCK_MONOTONIC: a lease must run out while the host is suspended.
        return time.clock_gettime_ns(_BOOTTIME) // 1_000_000
