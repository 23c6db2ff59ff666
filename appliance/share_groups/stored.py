"""What the log says about share groups; `replay` is the only method that writes.

A group is its epoch, its members with what they subscribe to, a target for each under an assignment epoch, what each
has at present, and which partitions have their state in `__share_group_state`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

Target = Mapping[uuid.UUID, tuple[int, ...]]
"""Partitions by topic, in order."""
KnownTopics = Mapping[uuid.UUID, tuple[str, tuple[int, ...]]]
"""Name and partitions by topic id."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """Who a member is and what it wants."""

    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    """In order, each once."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class ShareCurrent:
    """What a member has, and its epoch."""

    epoch: int = 0
    previous_epoch: int = 0
    """A member may not have heard of its present epoch yet."""
    assigned: Target = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownState:
    """Which partitions of a group have a state with the share coordinator."""

    initializing: KnownTopics = field(default_factory=dict)
    """It was asked for, and it is not known what came of it."""
    initialized: KnownTopics = field(default_factory=dict)
    deleting: Mapping[uuid.UUID, str] = field(default_factory=dict)
    """Its end was asked for, and it is not known what came of it."""


@dataclass(frozen=True, slots=True)
class ShareGroupEpochRecord:
    """A group's epoch and the hash of its topics; None ends the group."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ShareMemberRecord:
    group_id: str
    member_id: str
    member: ShareMember | None


@dataclass(frozen=True, slots=True)
class ShareTargetEpochRecord:
    group_id: str
    epoch: int | None
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShareTargetRecord:
    group_id: str
    member_id: str
    target: Target | None


@dataclass(frozen=True, slots=True)
class ShareCurrentRecord:
    group_id: str
    member_id: str
    current: ShareCurrent | None


@dataclass(frozen=True, slots=True)
class KnownStateRecord:
    group_id: str
    known: KnownState | None


ShareGroupRecord = (
    ShareGroupEpochRecord
    | ShareMemberRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | KnownStateRecord
)


class ShareGroup:
    """One group, as the log has it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Target] = {}
        self.current: dict[str, ShareCurrent] = {}
        self.known = KnownState()

    def current_of(self, member_id: str) -> ShareCurrent:
        """What the member has; nothing for one that is about to come."""
        return self.current.get(member_id) or ShareCurrent()

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        return "Stable" if self.members else "Empty"

    def tombstones(self) -> list[ShareGroupRecord]:
        """The records that end the group."""
        records: list[ShareGroupRecord] = [ShareCurrentRecord(self.group_id, each, None) for each in self.current]
        records += [ShareTargetRecord(self.group_id, each, None) for each in self.targets]
        records.append(ShareTargetEpochRecord(self.group_id, None))
        records += [ShareMemberRecord(self.group_id, each, None) for each in self.members]
        return [*records, KnownStateRecord(self.group_id, None), ShareGroupEpochRecord(self.group_id, None)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShareGroup):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]

    def _facts(self) -> tuple[object, ...]:
        return (
            self.group_id, self.epoch, self.metadata_hash, self.assignment_epoch, self.members, self.targets,
            self.current, self.known,
        )  # fmt: skip


class StoredShareGroups:
    """The share groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, ShareGroup] = {}

    def replay(self, record: ShareGroupRecord) -> None:
        """Take over a committed record."""
        match record:
            case ShareGroupEpochRecord(group_id, None):
                self.groups.pop(group_id, None)
            case ShareGroupEpochRecord(group_id, epoch, metadata_hash):
                group = self._group(group_id)
                group.epoch, group.metadata_hash = epoch or 0, metadata_hash
            case ShareMemberRecord(group_id, member_id, None):
                if group_id in self.groups:
                    self.groups[group_id].members.pop(member_id, None)
            case ShareMemberRecord(group_id, member_id, member):
                self._group(group_id).members[member_id] = member or ShareMember()
            case ShareTargetEpochRecord(group_id, epoch, timestamp_ms):
                if epoch is not None or group_id in self.groups:
                    group = self._group(group_id)
                    group.assignment_epoch, group.assignment_timestamp_ms = epoch or 0, timestamp_ms
            case ShareTargetRecord(group_id, member_id, None):
                if group_id in self.groups:
                    self.groups[group_id].targets.pop(member_id, None)
            case ShareTargetRecord(group_id, member_id, target):
                self._group(group_id).targets[member_id] = target or {}
            case ShareCurrentRecord(group_id, member_id, None):
                if group_id in self.groups:
                    self.groups[group_id].current.pop(member_id, None)
            case ShareCurrentRecord(group_id, member_id, current):
                self._group(group_id).current[member_id] = current or ShareCurrent()
            case KnownStateRecord(group_id, known):
                if known is not None or group_id in self.groups:
                    self._group(group_id).known = known or KnownState()

    def _group(self, group_id: str) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ShareGroup(group_id)
        return group
