"""What the log says about share groups; `replay` is the only method that writes.

A group is its epoch, its members with what they subscribe to, a target for each under an assignment epoch, what each
has at present, and which partitions have their state in `__share_group_state`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

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


class ShareGroupEpochRecord(EpochRecordOf):
    __slots__ = ()


class ShareMemberRecord(MemberRecordOf[ShareMember]):
    __slots__ = ()


class ShareTargetEpochRecord(TargetEpochRecordOf):
    __slots__ = ()


class ShareTargetRecord(TargetRecordOf[Target]):
    __slots__ = ()


class ShareCurrentRecord(CurrentRecordOf[ShareCurrent]):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class KnownStateRecord(OfGroup):
    known: KnownState | None


ShareGroupRecord = (
    ShareGroupEpochRecord
    | ShareMemberRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | KnownStateRecord
)


class ShareGroup(EpochGroup[ShareMember, Target, ShareCurrent]):
    """One group, as the log has it."""

    RECORDS = RecordTypes(
        ShareGroupEpochRecord, ShareMemberRecord, ShareTargetEpochRecord, ShareTargetRecord, ShareCurrentRecord
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, ShareCurrent)
        self.known = KnownState()

    @property
    def state_name(self) -> str:
        """As it is shown to clients."""
        return "Stable" if self.members else "Empty"

    def is_reconciled(self, member_id: str) -> bool:
        return True

    def _other_tombstones(self) -> list[ShareGroupRecord]:
        return [KnownStateRecord(self.group_id, None)]

    def replay(self, record: OfGroup) -> None:
        """Take over what does not end the group."""
        if isinstance(record, KnownStateRecord):
            self.known = record.known or KnownState()
        else:
            super().replay(record)

    def _facts(self) -> tuple[object, ...]:
        return (*super()._facts(), self.known)


class StoredShareGroups:
    """The share groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.groups: dict[str, ShareGroup] = {}

    def replay(self, record: ShareGroupRecord) -> None:
        """Take over a committed record."""
        replay(self.groups, ShareGroup, record)
