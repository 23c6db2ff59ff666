"""Which partition a record goes to: the same as Kafka's own producers choose, so that equal keys meet. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.client.partitioner import partition_for_key


class Partitioner:
    """Keys by their hash; records without a key fill one partition after the other, a batch each."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self._partitions = sorted(partitions)
        self._next = 0

    def of_key(self, key: bytes) -> int:
        return self._partitions[partition_for_key(key, len(self._partitions))]

    def next_without_key(self) -> int:
        partition = self._partitions[self._next % len(self._partitions)]
        self._next += 1
        return partition
