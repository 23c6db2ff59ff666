"""What the log says about groups: generations and committed offsets.

`replay` is the only method that writes, whether a record was committed just now or is read after a failover.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
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


@dataclass(frozen=True, slots=True)
class PendingOffsetRecord:
    """An offset that counts once the transaction of this producer is committed."""

    producer_id: int
    record: OffsetRecord


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """The transaction of this producer is committed or aborted, and with it its offsets."""

    producer_id: int
    is_commit: bool


GroupRecord = GenerationRecord | OffsetRecord | PendingOffsetRecord | TransactionEnded

TopicOffsets = dict[str, dict[int, CommittedOffset]]
"""Offsets by topic and partition."""


class StoredGroups:
    """All groups of one partition of `__consumer_offsets`, as the log has them."""

    def __init__(self) -> None:
        self.generations: dict[str, StoredGeneration] = {}
        self.offsets: dict[str, TopicOffsets] = {}
        self.pending: dict[int, dict[tuple[str, str, int], tuple[int, CommittedOffset]]] = {}
        """Offsets of open transactions by producer id, then by group, topic and partition, each with its number."""
        self._pending_number = 0

    def replay(self, record: GroupRecord) -> None:
        """Take over a committed record."""
        if isinstance(record, PendingOffsetRecord):
            self._replay_pending(record.producer_id, record.record)
        elif isinstance(record, TransactionEnded):
            self._replay_end(record)
        elif isinstance(record, OffsetRecord):
            if self.pending:
                self._forget_pending((record.group_id, record.topic, record.partition), self._pending_number)
            if record.offset is None:
                self._remove_offset(record.group_id, record.topic, record.partition)
            else:
                topics = self.offsets.setdefault(record.group_id, {})
                topics.setdefault(record.topic, {})[record.partition] = record.offset
        elif record.generation is None:
            self.generations.pop(record.group_id, None)
        else:
            self.generations[record.group_id] = record.generation

    def _replay_pending(self, producer_id: int, record: OffsetRecord) -> None:
        if record.offset is not None:
            self._pending_number += 1
            key = (record.group_id, record.topic, record.partition)
            self.pending.setdefault(producer_id, {})[key] = (self._pending_number, record.offset)

    def _replay_end(self, record: TransactionEnded) -> None:
        ended = self.pending.pop(record.producer_id, {})
        if record.is_commit:
            for (group_id, topic, partition), (number, offset) in ended.items():
                self._forget_pending((group_id, topic, partition), number)
                self.offsets.setdefault(group_id, {}).setdefault(topic, {})[partition] = offset

    def _forget_pending(self, key: tuple[str, str, int], up_to: int) -> None:
        """The last record of a partition in the log is what counts, whichever transaction ends last."""
        for producer_id, pending in list(self.pending.items()):
            if key in pending and pending[key][0] <= up_to:
                del pending[key]
                if not pending:
                    del self.pending[producer_id]

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may give the partition another offset."""
        key = (group_id, topic, partition)
        return any(key in pending for pending in self.pending.values())

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of the group."""
        return any(group_id == key[0] for pending in self.pending.values() for key in pending)

    def __contains__(self, group_id: str) -> bool:
        return (
            group_id in self.generations
            or group_id in self.offsets
            or (bool(self.pending) and self.has_pending(group_id))
        )

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
        return (
            self.generations == other.generations
            and self.offsets == other.offsets
            and _without_numbers(self.pending) == _without_numbers(other.pending)
        )

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


class LoadedTransactions:
    """Offsets in transactions, as a load meets them."""

    def __init__(self, stored: StoredGroups, read: Callable[[bytes, bytes | None], object]) -> None:
        self._stored = stored
        self._read = read

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> bool:
        record = self._read(key, value)
        if isinstance(record, OffsetRecord):
            self._stored.replay(PendingOffsetRecord(producer_id, record))
        return record is not None

    def ended(self, producer_id: int, is_commit: bool) -> None:
        self._stored.replay(TransactionEnded(producer_id, is_commit))


def _without_numbers(
    pending: dict[int, dict[tuple[str, str, int], tuple[int, CommittedOffset]]],
) -> dict[int, dict[tuple[str, str, int], CommittedOffset]]:
    return {
        producer_id: {key: offset for key, (_, offset) in offsets.items()} for producer_id, offsets in pending.items()
    }
