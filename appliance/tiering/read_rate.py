"""How fast the tier is read: `remote.log.manager.fetch.max.bytes.per.second` (KIP-956). Pure; time comes in.

As in Kafka, what was read counts when it is there. The rate is that since the oldest of the last windows began
(`remote.log.manager.fetch.quota.window.*`), and at least that of one window. While it is above the limit no read
begins; those that are under way go on.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = (1 << 63) - 1
WAITS_WINDOW_MS = 30_000
WAITS_WINDOWS = 2
"""What Kafka's metrics look back upon."""


class ReadRate:
    """Not safe for several threads at once."""

    def __init__(self, max_bytes_per_second: int, windows: int, window_ms: int) -> None:
        self.max_bytes_per_second = max_bytes_per_second
        """May be set at any time; what was read before goes on to count."""
        self.waits = Waits()
        self._window_ms = window_ms
        self._kept_ms = windows * window_ms
        self._samples: deque[list[int]] = deque()
        """[begin of the window in ms, its last read in ms, bytes]."""
        self._read_bytes = 0

    def read(self, size_bytes: int, now_ms: int) -> None:
        """So much has come."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window_ms:
            samples[-1][1] = now_ms
            samples[-1][2] += size_bytes
        else:
            self._forget(now_ms)
            samples.append([now_ms, now_ms, size_bytes])
        self._read_bytes += size_bytes

    def wait_ms(self, now_ms: int) -> int:
        """How long until the rate has come down to the limit; 0: a read may begin."""
        limit = self.max_bytes_per_second
        if limit == UNLIMITED:
            return 0
        self._forget(now_ms)
        if not self._samples:
            return 0
        elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
        per_second = self._read_bytes * 1_000 / elapsed_ms
        return round((per_second - limit) / limit * elapsed_ms) if per_second > limit else 0

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][1] >= self._kept_ms:
            self._read_bytes -= samples.popleft()[2]


class Waits:
    """How long readers were told to wait in the last minute, on average and at most (`remote-fetch-throttle-time`)."""

    def __init__(self) -> None:
        self._samples: deque[list[int]] = deque()
        """[begin in ms, how many waits, all of them in ms, the longest in ms]."""

    def record(self, wait_ms: int, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= WAITS_WINDOW_MS:
            self._forget(now_ms)
            samples.append([now_ms, 0, 0, 0])
        newest = samples[-1]
        newest[1] += 1
        newest[2] += wait_ms
        newest[3] = max(newest[3], wait_ms)

    def average_and_longest_ms(self, now_ms: int) -> tuple[float, int]:
        """Both 0 where nobody had to wait."""
        self._forget(now_ms)
        samples = list(self._samples)
        count = sum(sample[1] for sample in samples)
        longest = max((sample[3] for sample in samples), default=0)
        return (sum(sample[2] for sample in samples) / count if count else 0.0), longest

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= WAITS_WINDOWS * WAITS_WINDOW_MS:
            samples.popleft()
