"""Conversions between record batches and the message sets of old clients: how much is under way, how much was done.

They cost many times what the rest of a request costs, so their bytes have a limit of their own; who finds no room is
told to come again. One conversion is always let in.
"""

from __future__ import annotations

from collections import Counter

TOPICS_MAX = 1_000
"""Topics that are counted each by itself, until the next start; later ones are `OTHERS` together."""
OTHERS = "…"


class Conversions:
    """Of one broker. On the loop's thread; the exporter only looks."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        """`message.conversion.max.bytes`."""
        self.bytes_under_way = 0
        self.refused = 0
        """Requests that found no room."""
        self.produced: Counter[str] = Counter()
        """Records that were made batches, by topic."""
        self.fetched: Counter[str] = Counter()
        """Records that were made message sets, by topic."""

    def begin(self, size: int) -> bool:
        """Whether so many bytes may be converted now; then `end` follows."""
        if self.bytes_under_way and self.bytes_under_way + size > self.max_bytes:
            self.refused += 1
            return False
        self.bytes_under_way += size
        return True

    def end(self, size: int) -> None:
        self.bytes_under_way -= size

    @staticmethod
    def count(counts: Counter[str], topic: str, records: int) -> None:
        """So many records of a topic were converted."""
        counts[topic if topic in counts or len(counts) < TOPICS_MAX else OTHERS] += records
