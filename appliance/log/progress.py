"""How far a long start or end of many logs is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from appliance.base.clock import Clock

logger = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS = 5_000
"""How often a long start or end tells how far it is."""
WORKING_INTERVAL_MS = 1_000
"""How often a long end tells whoever waits for it that it gets on."""


class Progress:
    """Tells now and then how far a long work is. Any thread may call it."""

    def __init__(self, done: str, total: int, clock: Clock, working: Callable[[], None] = lambda: None) -> None:
        self._done = done
        self._total = total
        self._clock = clock
        self._count = 0
        self._working = working
        self._started_ms = self._told_ms = self._worked_ms = clock.monotonic_ms()
        self._lock = threading.Lock()

    def one_more(self) -> None:
        with self._lock:
            self._count += 1
            now_ms = self._clock.monotonic_ms()
            works = now_ms - self._worked_ms >= WORKING_INTERVAL_MS
            tells = now_ms - self._told_ms >= PROGRESS_INTERVAL_MS
            if works:
                self._worked_ms = now_ms
            if tells:
                self._told_ms = now_ms
        if works:
            self._working()
        if tells:
            logger.info("%s %s of %s logs", self._done, f"{self._count:,}", f"{self._total:,}")

    def tell_end(self) -> None:
        seconds = (self._clock.monotonic_ms() - self._started_ms) / 1_000
        logger.info("%s %s logs in %.1f s", self._done, f"{self._total:,}", seconds)
