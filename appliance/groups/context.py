"""What the deciding functions of this package share: the groups of one partition, and their deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from appliance.base.randomness import Randomness, random_uuid
from appliance.coordinator.calls import Effect
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.groups.config import GroupConfig
from appliance.groups.group import Group
from appliance.groups.members import Member
from appliance.groups.stored import GroupRecord, StoredGroups

GroupEffect = Effect[GroupRecord]
DeadlineKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionOver:
    """A member has not been heard for its session timeout, or an id that was given out has not come back."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class JoinOver:
    """Members that have not joined again had their time."""

    group_id: str


@dataclass(frozen=True, slots=True)
class InitialDelayOver:
    """An empty group has waited for more members."""

    group_id: str
    delay_ms: int
    remaining_ms: int
    """How much longer it may wait if they keep coming."""


@dataclass(frozen=True, slots=True)
class SyncOver:
    """Members that have not asked for their assignments had their time."""

    group_id: str
    generation_id: int


@dataclass(frozen=True, slots=True)
class ExpiryDue:
    """Look for offsets and groups that are not kept any longer."""


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """Of groups of another kind that lie in the same partition."""


Event = SessionOver | JoinOver | InitialDelayOver | SyncOver | ExpiryDue | OtherEvent


class OtherGroup(Protocol):
    """A group of another kind, as far as its offsets are concerned."""

    @property
    def is_empty(self) -> bool: ...

    def may_read(self, topic: str) -> bool:
        """Whether offsets of this topic are in use."""

    def tombstones(self) -> list[Any]:
        """The records that end it."""


@dataclass(slots=True)
class Context:
    """The groups of one partition of `__consumer_offsets`."""

    config: GroupConfig
    randomness: Randomness
    stored: StoredGroups
    groups: dict[str, Group] = field(default_factory=dict)
    """Those with members, or with somebody about to become one. For all others the stored state says everything."""
    deadlines: Deadlines[DeadlineKey, Event] = field(default_factory=Deadlines)
    others: Mapping[str, OtherGroup] = field(default_factory=dict)
    """Groups of another kind, which have their offsets here, too."""
    to_expire: list[str] = field(default_factory=list)
    """Groups that the present round of expiry has not looked at yet."""

    def find(self, group_id: str) -> Group | None:
        """A group as it is now; for an empty one an object made for the moment. None: there is no such group."""
        group = self.groups.get(group_id)
        if group is None and group_id in self.stored:
            group = Group(group_id, self.stored.generations.get(group_id))
        return group

    def forget_if_stored(self, group: Group) -> None:
        """Drop the object of a group that nobody is in, if the log knows as much."""
        generation = self.stored.generations.get(group.group_id)
        if group.forgettable and group.generation_id == (generation.generation_id if generation else 0):
            self.groups.pop(group.group_id, None)

    def expect_heartbeat(self, group: Group, member: Member, now: Moment, timeout_ms: int | None = None) -> None:
        """Start the member's session anew."""
        self.expect(group.group_id, member.member_id, now, timeout_ms or member.session_timeout_ms)

    def expect(self, group_id: str, member_id: str, now: Moment, timeout_ms: int) -> None:
        """Hear of this member id within the time, or it is removed."""
        key = ("session", group_id, member_id)
        self.deadlines.set(key, now.monotonic_ms + timeout_ms, SessionOver(group_id, member_id))

    def expect_nothing(self, group_id: str, member_id: str) -> None:
        """The session is over."""
        self.deadlines.cancel(("session", group_id, member_id))

    def new_member_id(self, prefix: str) -> str:
        """An id for a member that comes without one."""
        return f"{prefix}-{random_uuid(self.randomness)}"


def join_key(group: Group) -> DeadlineKey:
    """Key of the end of a group's join phase."""
    return ("join", group.group_id)


def sync_key(group: Group) -> DeadlineKey:
    """Key of the end of a group's sync phase."""
    return ("sync", group.group_id)
