"""How fast segments go up: `remote.log.manager.copy.max.bytes.per.second` (KIP-956). Pure."""

from __future__ import annotations

UNLIMITED = (1 << 63) - 1


class CopyRate:
    """Whole segments count when they begin; the next one begins when their bytes are paid for."""

    def __init__(self) -> None:
        self._max_bytes_per_second = UNLIMITED
        self._paid_at_ms = 0

    def limit(self, max_bytes_per_second: int) -> bool:
        """Whether that is a new limit; it forgets what was begun under the old one."""
        if max_bytes_per_second == self._max_bytes_per_second:
            return False
        self._max_bytes_per_second, self._paid_at_ms = max_bytes_per_second, 0
        return True

    def wait_ms(self, now_ms: int) -> int:
        """How long no segment may begin."""
        return max(0, self._paid_at_ms - now_ms)

    def begun(self, size_bytes: int, now_ms: int) -> None:
        cost_ms = size_bytes * 1_000 // self._max_bytes_per_second
        self._paid_at_ms = max(self._paid_at_ms, now_ms) + cost_ms
