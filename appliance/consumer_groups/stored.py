"""What the log says about consumer groups; `replay` is the only method that writes.

A group is its epoch, its members with what they subscribe to, a target for each member under an assignment epoch, and
what each member has at present on its way there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, cast, get_args

from appliance.consumer_groups.assignors import Target
from appliance.groups.epoch_groups import (
    CurrentRecordOf,
    EpochGroup,
    EpochRecordOf,
    MemberRecordOf,
    OfGroup,
    RecordTypes,
    TargetEpochRecordOf,
    TargetRecordOf,
    replay,
)
from appliance.groups.stored import GroupRecord, StoredGroups

Owned = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions by topic, each with the member epoch in which it was given."""


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers stand in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has partitions that others are to get, and has not said yet that it gave them up."""
    UNRELEASED_PARTITIONS = 2
    """It has given up all that it had to; others have partitions that it is to get."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """Of a member that still speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """Who a member is and what it wants."""

    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """In order, each once."""
    topic_regex: str = ""
    """Empty: none."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    classic: ClassicMember | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """What a member has, and its epoch."""

    epoch: int = 0
    previous_epoch: int = 0
    """A member may not have heard of its present epoch yet."""
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)

    def same_partitions(self, other: Current) -> bool:
        """Whether the other has the same, to keep and to give up."""
        return self.assigned == other.assigned and self.pending_revocation == other.pending_revocation

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression has met."""

    topics: tuple[str, ...]
    version: int
    """Of the metadata that was looked at."""
    timestamp_ms: int


class GroupEpochRecord(EpochRecordOf):
    __slots__ = ()


class MemberRecord(MemberRecordOf[MemberInfo]):
    __slots__ = ()


class TargetEpochRecord(TargetEpochRecordOf):
    __slots__ = ()


class TargetRecord(TargetRecordOf[Target]):
    __slots__ = ()


class CurrentRecord(CurrentRecordOf[Current]):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RegexRecord(OfGroup):
    NAMES: ClassVar[int] = 2

    regex: str
    resolved: ResolvedRegex | None


@dataclass(frozen=True, slots=True)
class PartitionMetadataRecord:
    """Of brokers before Kafka 4.1, which kept the topics of a group beside it; not used any more."""

    group_id: str


ConsumerGroupRecord = (
    GroupEpochRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
    | PartitionMetadataRecord
)
AnyRecord = GroupRecord | ConsumerGroupRecord


class ConsumerGroup(EpochGroup[MemberInfo, Target, Current]):
    """One group, as the log has it."""

    RECORDS = RecordTypes(GroupEpochRecord, MemberRecord, TargetEpochRecord, TargetRecord, CurrentRecord)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, Current)
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[uuid.UUID, dict[int, str]] = {}
        self._topic_names: frozenset[str] | None = None

    def twin(self) -> ConsumerGroup:
        """Another group of the same state; what either replays, the other does not know."""
        twin = copy(self)
        for name in ("members", "targets", "current", "static_members", "regexes"):
            setattr(twin, name, dict(getattr(self, name)))
        twin._owners = {topic_id: dict(owners) for topic_id, owners in self._owners.items()}
        return twin

    def owner(self, topic_id: uuid.UUID, partition: int) -> str | None:
        """Who has a partition, or has not said yet that it gave it up."""
        owners = self._owners.get(topic_id)
        return owners.get(partition) if owners else None

    def topics_of(self, member: MemberInfo, regexes: Mapping[str, ResolvedRegex] | None = None) -> Iterator[str]:
        """Names of all topics that a member reads, some perhaps twice."""
        yield from member.topic_names
        if member.topic_regex:
            resolved = (self.regexes if regexes is None else regexes).get(member.topic_regex)
            if resolved is not None:
                yield from resolved.topics

    @property
    def topic_names(self) -> frozenset[str]:
        """Names of all topics that anybody reads."""
        if self._topic_names is None:
            self._topic_names = frozenset(name for member in self.members.values() for name in self.topics_of(member))
        return self._topic_names

    def may_read(self, topic: str) -> bool:
        return topic in self.topic_names

    def is_reconciled(self, member_id: str) -> bool:
        return self.current_of(member_id).is_reconciled_to(self.assignment_epoch)

    def _other_tombstones(self) -> list[ConsumerGroupRecord]:
        return [RegexRecord(self.group_id, each, None) for each in self.regexes]

    # What `replay` does

    def replay(self, record: OfGroup) -> None:
        """Take over what does not end the group."""
        if isinstance(record, RegexRecord):
            self.put_regex(record.regex, record.resolved)
        else:
            super().replay(record)

    def put_member(self, member_id: str, member: MemberInfo | None) -> None:
        self._topic_names = None
        before = self.members.get(member_id)
        if before is not None and before.instance_id and self.static_members.get(before.instance_id) == member_id:
            del self.static_members[before.instance_id]
        super().put_member(member_id, member)
        if member is not None and member.instance_id:
            self.static_members[member.instance_id] = member_id

    def put_current(self, member_id: str, current: Current | None) -> None:
        before = self.current.get(member_id)
        if before is not None and current is not None and before.same_partitions(current):
            # Most members only go to the next epoch.
            super().put_current(member_id, current)
            return
        if before is not None:
            for owned in (before.assigned, before.pending_revocation):
                self._release(member_id, owned)
        super().put_current(member_id, current)
        if current is None:
            return
        for owned in (current.assigned, current.pending_revocation):
            for topic_id, partitions in owned.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, owned: Owned) -> None:
        for topic_id, partitions in owned.items():
            owners = self._owners.get(topic_id, {})
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                self._owners.pop(topic_id, None)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        self._topic_names = None
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved

    def _facts(self) -> tuple[object, ...]:
        return (*super()._facts(), self.static_members, self.regexes, self._owners)


_REPLAYED = frozenset(get_args(ConsumerGroupRecord)) - {PartitionMetadataRecord}


class StoredAllGroups(StoredGroups):
    """Groups of both protocols, and their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer_groups: dict[str, ConsumerGroup] = {}

    def replay(self, record: AnyRecord) -> None:
        """Take over a committed record."""
        if type(record) in _REPLAYED:
            replay(self.consumer_groups, ConsumerGroup, cast(OfGroup, record))
        elif not isinstance(record, PartitionMetadataRecord):
            super().replay(cast(GroupRecord, record))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.consumer_groups or super().__contains__(group_id)

    def group_ids(self) -> list[str]:
        """Every group that the log knows."""
        return list({**dict.fromkeys(super().group_ids()), **dict.fromkeys(self.consumer_groups)})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredAllGroups):
            return NotImplemented
        return self.consumer_groups == other.consumer_groups and super().__eq__(other)

    __hash__ = None
