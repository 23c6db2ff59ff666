"""When a stream's next batch begins: at once, or when enough has come in. Pure."""

from __future__ import annotations


class TriggerDelay:
    """`minOffsetsPerTrigger` with `maxTriggerDelay`, by the rules of Spark's Kafka source.

    The first look lets a batch begin, whatever there is; so does one that comes `max_delay_ms` after the last look that
    did. A query that is restarted begins anew.

    Args:
        min_offsets: so many have to be there, over all partitions; 0 = a batch never waits.
        max_delay_ms: unless it is that long ago.
    """

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def holds_back(self, offsets: int, now_ms: int) -> bool:
        """Whether a batch of so many offsets has to wait; if not, it is taken to begin now."""
        if self._last_ms is not None and offsets < self._min_offsets and now_ms - self._last_ms < self._max_delay_ms:
            return True
        self._last_ms = now_ms
        return False
