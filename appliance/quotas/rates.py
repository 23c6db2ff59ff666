"""How fast something is used up, over the last few windows, and how long its user must wait: pure, time comes in.

As in Kafka, a rate is measured over `quota.window.num` windows of `quota.window.size.seconds` (at least all of them but
the one that is being filled, so that a burst after silence counts as spread over that time), and who is above the limit
waits as long as it takes the average to come down to it.
"""

from __future__ import annotations

from collections import deque


class Rate:
    """Units per second, and the wait that a limit asks for."""

    __slots__ = ("_samples", "_total", "_window_ms", "_windows", "limit")

    def __init__(self, limit: float, windows: int, window_ms: int) -> None:
        self.limit = limit
        """Units per second."""
        self._windows = windows
        self._window_ms = window_ms
        self._samples: deque[list[float]] = deque()
        """[start of the window in ms, units]."""
        self._total = 0.0

    def record(self, units: float, now_ms: int) -> None:
        """So much was used."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window_ms:
            samples[-1][1] += units
        else:
            samples.append([now_ms, units])
            self._forget(now_ms)
        self._total += units

    def wait_ms(self, now_ms: int) -> int:
        """How long its user must wait now; 0: it may go on."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        elapsed_ms = self._elapsed_ms(now_ms)
        per_second = self._total * 1_000 / elapsed_ms
        if per_second <= self.limit:
            return 0
        if self.limit <= 0:
            return self._window_ms * self._windows
        return round((per_second - self.limit) / self.limit * elapsed_ms)

    def per_second(self, now_ms: int) -> float:
        """The rate as it is now."""
        self._forget(now_ms)
        return self._total * 1_000 / self._elapsed_ms(now_ms) if self._samples else 0.0

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing of it counts any more."""
        self._forget(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> int:
        elapsed_ms = int(now_ms - self._samples[0][0])
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        return max(1, elapsed_ms + max(0, missing) * self._window_ms)

    def _forget(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._windows * self._window_ms
        while samples and samples[0][0] <= oldest_ms:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0


class TokenBucket:
    """Changes of topics and partitions: a burst is let through, then only as many as flow in (KIP-599)."""

    __slots__ = ("_burst", "_filled_ms", "_tokens", "rate")

    def __init__(self, rate: float, windows: int, window_ms: int, now_ms: int) -> None:
        self.rate = rate
        """Tokens per second."""
        self._burst = rate * windows * window_ms / 1_000
        self._tokens = self._burst
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """How long until the bucket is no longer empty; 0 while it is not."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        return round(-self._tokens / self.rate * 1_000) if self.rate > 0 else 2**31 - 1

    def take(self, tokens: float, now_ms: int) -> None:
        """So many changes are made: the bucket may be short of tokens afterwards."""
        self._fill(now_ms)
        self._tokens -= tokens

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(self._burst, self._tokens + self.rate * (now_ms - self._filled_ms) / 1_000)
        self._filled_ms = now_ms
