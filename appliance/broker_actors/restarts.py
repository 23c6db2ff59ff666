"""When an ended process is started again: at once the first time, ever later if it keeps ending. Pure.

At once, because leases run while a controller is away: each half second of waiting brings brokers nearer to their end.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RestartPolicy:
    """Bounded exponential back-off for each process."""

    backoff_ms: int
    backoff_max_ms: int
    forgive_after_ms: int = 60_000
    """A process that has been ready for this long starts over with the short back-off."""
    _failures: dict[str, int] = field(default_factory=dict)
    _ready_since_ms: dict[str, int] = field(default_factory=dict)

    def ready(self, name: str, now_ms: int) -> None:
        self._ready_since_ms[name] = now_ms

    def ended(self, name: str, now_ms: int) -> int:
        """The time, in milliseconds as `now_ms`, at which the process is to be started again."""
        since_ms = self._ready_since_ms.pop(name, None)
        if since_ms is not None and now_ms - since_ms >= self.forgive_after_ms:
            self._failures[name] = 0
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        if not failures:
            return now_ms
        # 2 ** 20 is beyond any limit that makes sense, and the number must not grow for ever.
        return now_ms + min(self.backoff_max_ms, self.backoff_ms << min(failures - 1, 20))
