"""What the deciding functions of groups that go from epoch to epoch have in common: the metadata, and deadlines."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from appliance.base.config_resources import GROUP
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.groups.context import OtherEvent
from appliance.groups.epoch_groups import EpochGroup

RETRY_MS = 200
"""When something else about the group was being written, a deadline that had to wait for that is looked at again."""
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Topic(Protocol):
    """What matters of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> uuid.UUID: ...

    @property
    def partitions(self) -> Sized: ...


class World(Protocol):
    """The metadata at one moment; `appliance.controller.image.MetadataImage` is one."""

    @property
    def position(self) -> int: ...

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topics_by_id(self) -> Mapping[uuid.UUID, Topic]: ...

    @property
    def resource_configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]: ...


class Config(Protocol):
    """What a kind of groups is configured with; `entries` are those of one group."""

    def session_timeout_of(self, entries: Mapping[str, str]) -> int: ...

    def assignment_interval_of(self, entries: Mapping[str, str]) -> int: ...


@dataclass(frozen=True, slots=True)
class OfOneGroup(OtherEvent):
    """Something is due about a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class OfOneMember(OfOneGroup):
    """Something is due about a member."""

    member_id: str


@dataclass(frozen=True, slots=True)
class OfOneEpoch(OfOneMember):
    """Something is due about a member in one of its epochs."""

    epoch: int


@dataclass(slots=True)
class EpochContext:
    """The groups of one kind in one partition of `__consumer_offsets`."""

    KIND: ClassVar[str]
    """Tells the deadlines of kinds apart."""
    SESSION_OVER: ClassVar[type[OfOneMember]]
    REVOCATION_OVER: ClassVar[type[OfOneEpoch]]
    ASSIGNMENT_DUE: ClassVar[type[OfOneGroup]]

    deadlines: Deadlines[Any, Any]
    world: Callable[[], World]
    config: Config

    def entries(self, group_id: str) -> Mapping[str, str]:
        """What was configured for the one group."""
        return self.world().resource_configs.get((GROUP, group_id), {})

    def metadata_hash(self, names: Iterable[str]) -> int:
        """A number that changes when topics come, go, or get more partitions; 0 for none."""
        topics = self.world().topics
        digest = hashlib.blake2b(digest_size=8)
        is_any = False
        for name in sorted(set(names)):
            topic = topics.get(name)
            if topic is not None:
                is_any = True
                digest.update(topic.topic_id.bytes + _INT32.pack(len(topic.partitions)) + name.encode() + b"\0")
        return int(_INT64.unpack(digest.digest())[0]) if is_any else 0

    def wait_ms(self, group: EpochGroup[Any, Any, Any], now: Moment) -> int:
        """How long the next target has to wait."""
        passed_ms = now.wall_ms - group.assignment_timestamp_ms
        if passed_ms < 0:
            # The host's clock was set back, or the last coordinator's ran ahead.
            return 0
        return max(0, self.config.assignment_interval_of(self.entries(group.group_id)) - passed_ms)

    # Deadlines

    def expect_member(self, group_id: str, member_id: str, now: Moment, timeout_ms: int | None = None) -> None:
        """Hear of this member within the time, or it is removed."""
        if timeout_ms is None:
            timeout_ms = self.config.session_timeout_of(self.entries(group_id))
        key, event = (self.KIND, "member", group_id, member_id), self.SESSION_OVER(group_id, member_id)
        self.deadlines.set(key, now.monotonic_ms + timeout_ms, event)

    def is_late(self, group_id: str, member_id: str, now: Moment) -> bool:
        """Whether the member was to be heard before now."""
        due_ms = self.deadlines.due_ms((self.KIND, "member", group_id, member_id))
        return due_ms is not None and due_ms <= now.monotonic_ms

    def expect_revocation(self, group_id: str, member_id: str, epoch: int, now: Moment, timeout_ms: int) -> None:
        """Hear within the time that this member has given up what it must, or it is removed."""
        key, event = (self.KIND, "revocation", group_id, member_id), self.REVOCATION_OVER(group_id, member_id, epoch)
        self.deadlines.set(key, now.monotonic_ms + timeout_ms, event)

    def expect_no_revocation(self, group_id: str, member_id: str) -> None:
        self.deadlines.cancel((self.KIND, "revocation", group_id, member_id))

    def expect_nothing(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        self.deadlines.cancel((self.KIND, "member", group_id, member_id))
        self.expect_no_revocation(group_id, member_id)

    def assign_in(self, group_id: str, now: Moment, delay_ms: int) -> None:
        """Look after a new target then."""
        self.deadlines.set(
            (self.KIND, "assignment", group_id), now.monotonic_ms + delay_ms, self.ASSIGNMENT_DUE(group_id)
        )
