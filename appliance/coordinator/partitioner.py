"""Which partition of an internal topic looks after a group or a transactional id."""

from __future__ import annotations

from functools import lru_cache

_SIGN = 1 << 31


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with sign."""
    value = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & _SIGN else value


@lru_cache(10_000)
def partition_for(key: str, partitions: int) -> int:
    """The partition that every broker and every tool of Kafka computes for `key`."""
    value = java_hash(key)
    # Java has no positive counterpart of its smallest int; Kafka takes zero for it.
    return 0 if value == -_SIGN else abs(value) % partitions
