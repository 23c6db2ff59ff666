"""What the log says about consumer groups; `replay` is the only method that writes.

A group is its epoch, its members with what they subscribe to, a target for each member under an assignment epoch, and
what each member has at present on its way there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from appliance.consumer_groups.assignors import Target
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

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression has met."""

    topics: tuple[str, ...]
    version: int
    """Of the metadata that was looked at."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class GroupEpochRecord:
    """A group's epoch and the hash of its topics; None ends the group."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    group_id: str
    member_id: str
    member: MemberInfo | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    group_id: str
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetRecord:
    group_id: str
    member_id: str
    target: Target | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    group_id: str
    member_id: str
    current: Current | None


@dataclass(frozen=True, slots=True)
class RegexRecord:
    group_id: str
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


class ConsumerGroup:
    """One group, as the log has it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, MemberInfo] = {}
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.targets: dict[str, Target] = {}
        self.current: dict[str, Current] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[uuid.UUID, dict[int, str]] = {}
        self._topic_names: frozenset[str] | None = None

    def current_of(self, member_id: str) -> Current:
        """What the member has; nothing for one that is about to come."""
        return self.current.get(member_id) or Current()

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

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(self.current_of(member_id).is_reconciled_to(self.assignment_epoch) for member_id in self.members):
            return "Stable"
        return "Reconciling"

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """The records that end the group."""
        records: list[ConsumerGroupRecord] = [CurrentRecord(self.group_id, each, None) for each in self.current]
        records += [TargetRecord(self.group_id, each, None) for each in self.targets]
        records.append(TargetEpochRecord(self.group_id, None))
        records += [MemberRecord(self.group_id, each, None) for each in self.members]
        records += [RegexRecord(self.group_id, each, None) for each in self.regexes]
        return [*records, GroupEpochRecord(self.group_id, None)]

    # What `replay` does

    def put_member(self, member_id: str, member: MemberInfo | None) -> None:
        self._topic_names = None
        before = self.members.get(member_id)
        if before is not None and before.instance_id and self.static_members.get(before.instance_id) == member_id:
            del self.static_members[before.instance_id]
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        if member.instance_id:
            self.static_members[member.instance_id] = member_id

    def put_current(self, member_id: str, current: Current | None) -> None:
        before = self.current.get(member_id)
        if before is not None:
            for owned in (before.assigned, before.pending_revocation):
                self._release(member_id, owned)
        if current is None:
            self.current.pop(member_id, None)
            return
        self.current[member_id] = current
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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerGroup):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id, self.epoch, self.metadata_hash, self.assignment_epoch, self.members, self.static_members,
            self.targets, self.current, self.regexes, self._owners,
        )  # fmt: skip


class StoredAllGroups(StoredGroups):
    """Groups of both protocols, and their offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.consumer_groups: dict[str, ConsumerGroup] = {}

    def replay(self, record: AnyRecord) -> None:
        """Take over a committed record."""
        match record:
            case GroupEpochRecord(group_id, epoch, metadata_hash):
                if epoch is None:
                    self.consumer_groups.pop(group_id, None)
                else:
                    group = self._group(group_id)
                    group.epoch, group.metadata_hash = epoch, metadata_hash
            case MemberRecord(group_id, member_id, member):
                if member is not None or group_id in self.consumer_groups:
                    self._group(group_id).put_member(member_id, member)
            case TargetEpochRecord(group_id, epoch, timestamp_ms):
                if epoch is not None or group_id in self.consumer_groups:
                    group = self._group(group_id)
                    group.assignment_epoch, group.assignment_timestamp_ms = epoch or 0, timestamp_ms
            case TargetRecord(group_id, member_id, target):
                if target is not None:
                    self._group(group_id).targets[member_id] = target
                elif group_id in self.consumer_groups:
                    self.consumer_groups[group_id].targets.pop(member_id, None)
            case CurrentRecord(group_id, member_id, current):
                if current is not None or group_id in self.consumer_groups:
                    self._group(group_id).put_current(member_id, current)
            case RegexRecord(group_id, regex, resolved):
                if resolved is not None or group_id in self.consumer_groups:
                    self._group(group_id).put_regex(regex, resolved)
            case PartitionMetadataRecord():
                pass
            case _:
                super().replay(record)

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

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self.consumer_groups.get(group_id)
        if group is None:
            group = self.consumer_groups[group_id] = ConsumerGroup(group_id)
        return group
