"""Which partition a record goes to: the same as Kafka's own producers choose, so that equal keys meet. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, 32 bits without sign."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> _R) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


class Partitioner:
    """Keys by their hash; records without a key fill one partition after the other, a batch each."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = sorted(partitions)
        self._next = 0

    def of_key(self, key: bytes) -> int:
        return self._partitions[(murmur2(key) & 0x7FFFFFFF) % len(self._partitions)]

    def next_without_key(self) -> int:
        partition = self._partitions[self._next % len(self._partitions)]
        self._next += 1
        return partition
