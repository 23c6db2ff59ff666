"""What the log says about groups: generations and committed offsets.

`replay` is the only method that writes, whether a record was committed just now or is read after a failover.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.ids import ZERO_UUID

NO_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = 0
    expire_timestamp_ms: int = NO_TIMESTAMP
    """Set only by clients that say themselves how long an offset is kept (OffsetCommit 2 to 4)."""
    topic_id: uuid.UUID = ZERO_UUID

    def is_of(self, topic_id: uuid.UUID) -> bool:
        """Whether it belongs to this topic, and not to an older one of the same name; an unknown id fits any."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


class StoredMember(NamedTuple):
    """A member of a stored generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol that was selected; opaque."""
    assignment: bytes
    """What the leader gave it; opaque."""


class StoredGeneration(NamedTuple):
    """The last generation of a group that reached the log."""

    protocol_type: str
    """Empty: none yet."""
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    """When the group came into its state; `NO_TIMESTAMP` in records of old brokers."""
    members: tuple[StoredMember, ...]


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """A group's generation, or its end (None)."""

    group_id: str
    generation: StoredGeneration | None


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's offset in one partition, or its end (None)."""

    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset | None


GroupRecord = GenerationRecord | OffsetRecord

TopicOffsets = dict[str, dict[int, CommittedOffset]]
"""Offsets by topic and partition."""


class StoredGroups:
    """All groups of one partition of `__consumer_offsets`, as the log has them."""

    def __init__(self) -> None:
        self.generations: dict[str, StoredGeneration] = {}
        self.offsets: dict[str, TopicOffsets] = {}

    def replay(self, record: GroupRecord) -> None:
        """Take over a committed record."""
        if isinstance(record, OffsetRecord):
            if record.offset is None:
                self._remove_offset(record.group_id, record.topic, record.partition)
            else:
                topics = self.offsets.setdefault(record.group_id, {})
                topics.setdefault(record.topic, {})[record.partition] = record.offset
        elif record.generation is None:
            self.generations.pop(record.group_id, None)
        else:
            self.generations[record.group_id] = record.generation

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.generations or group_id in self.offsets

    def group_ids(self) -> list[str]:
        """Every group that has a generation or an offset."""
        return list({**self.generations, **self.offsets})

    def offset(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One committed offset."""
        return self.offsets.get(group_id, {}).get(topic, {}).get(partition)

    def offsets_of(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """All offsets of a group as (topic, partition, offset)."""
        for topic, partitions in self.offsets.get(group_id, {}).items():
            for partition, offset in partitions.items():
                yield topic, partition, offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredGroups):
            return NotImplemented
        return self.generations == other.generations and self.offsets == other.offsets

    __hash__ = None  # type: ignore[assignment]

    def _remove_offset(self, group_id: str, topic: str, partition: int) -> None:
        topics = self.offsets.get(group_id)
        partitions = topics.get(topic) if topics else None
        if topics is None or partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
        if not topics:
            del self.offsets[group_id]
