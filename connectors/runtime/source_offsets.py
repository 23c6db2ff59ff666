"""Source offsets in Connect's layout: key `["connector", {partition}]`, value `{offset}`, both JSON."""

from __future__ import annotations

import json

from connectors.api import OffsetReader, SourceOffset, SourcePartition
from connectors.runtime.topics import CompactedTopic

OFFSET_TOPIC_PARTITIONS = 25


class SourceOffsets(OffsetReader):
    """The committed offsets of one connector."""

    def __init__(self, topic: CompactedTopic, connector: str) -> None:
        self._topic = topic
        self._connector = connector
        self._committed = topic.load()

    def offset(self, source_partition: SourcePartition) -> SourceOffset | None:
        found = self._committed.get(self._key(source_partition))
        return None if found is None else json.loads(found)

    def commit(self, source_partition: SourcePartition, offset: SourceOffset) -> None:
        """Returns once it is durable. Raises: KafkaError."""
        key, value = self._key(source_partition), _json(offset)
        self._topic.put(key, value)
        self._committed[key] = value

    def _key(self, source_partition: SourcePartition) -> bytes:
        return _json([self._connector, source_partition])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
