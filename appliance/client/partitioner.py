"""Which partition a key belongs to: Kafka's default, so that all clients agree."""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash with the seed of Kafka's Java client, as an unsigned number."""
    length = len(data)
    hashed = _SEED ^ length
    tail_start = length & ~3
    for (word,) in struct.iter_unpack("<I", memoryview(data)[:tail_start]):
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        hashed = ((hashed * _MULTIPLIER) & _MASK) ^ word
    if length > tail_start:
        hashed ^= int.from_bytes(data[tail_start:], "little")
        hashed = (hashed * _MULTIPLIER) & _MASK
    hashed ^= hashed >> 13
    hashed = (hashed * _MULTIPLIER) & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key among `partition_count`."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
