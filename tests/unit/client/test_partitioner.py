"""Keys go to the partitions that Kafka's clients choose."""

from __future__ import annotations

import random

from kafka.partitioner.default import murmur2 as reference

from appliance.client.partitioner import murmur2, partition_for_key


def test_the_hash_is_that_of_kafkas_clients() -> None:
    randomness = random.Random(7)
    for length in range(200):
        key = randomness.randbytes(length)
        assert murmur2(key) & 0x7FFFFFFF == reference(key) & 0x7FFFFFFF


def test_known_keys() -> None:
    # From Kafka's own Java client.
    assert partition_for_key(b"N14228", 6) == (reference(b"N14228") & 0x7FFFFFFF) % 6
    assert partition_for_key(b"", 1) == 0
