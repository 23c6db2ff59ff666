"""What the deciding functions of share groups have in common: the world, deadlines, work for the persister."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.groups.epoch_context import EpochContext, OfOneGroup, OfOneMember
from appliance.share_groups.config import ShareGroupConfig
from appliance.share_groups.stored import ShareGroup, ShareGroupRecord, StoredShareGroups
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

AnyEffect = Effect[Any]

UNKNOWN_START = -1
"""The start offset of a partition that nobody has read yet: `share.auto.offset.reset` says where it is."""
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class ShareSessionOver(OfOneMember):
    """A member has not been heard for its session timeout."""

    __slots__ = ()


class ShareAssignmentDue(OfOneGroup):
    """Enough time has passed since the last target."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Place:
    """One partition of a group, for the share coordinator."""

    topic_id: uuid.UUID
    partition: int
    start_offset: int = UNKNOWN_START


@dataclass(frozen=True, slots=True, eq=False)
class PersistJob:
    """States to be begun or ended by the share coordinator, wherever it is; the outcome comes back by `persisted`."""

    group_id: str
    places: tuple[Place, ...]
    state_epoch: int
    """Of states to be begun; -1: they are to be ended."""
    why: object = None
    """Whom the outcome is for."""

    @property
    def is_beginning(self) -> bool:
        return self.state_epoch >= 0


Outcome = Mapping[tuple[uuid.UUID, int], tuple[ErrorCode, str | None]]
"""What came of each place."""


@dataclass(slots=True)
class ShareContext(EpochContext):
    """The share groups of one partition of `__consumer_offsets`."""

    KIND: ClassVar[str] = "share"
    SESSION_OVER: ClassVar[type[ShareSessionOver]] = ShareSessionOver
    ASSIGNMENT_DUE: ClassVar[type[ShareAssignmentDue]] = ShareAssignmentDue

    config: ShareGroupConfig
    stored: StoredShareGroups
    jobs: list[PersistJob] = field(default_factory=list)
    """Work for the persister, taken by whoever owns the machine."""
    initializing_since_ms: dict[str, int] = field(default_factory=dict)
    """When the states of a group were asked for last, on the monotonic clock."""

    def find(self, group_id: str) -> ShareGroup | None:
        return self.stored.groups.get(group_id)

    def assignable(self, group: ShareGroup, names: Mapping[str, None]) -> dict[uuid.UUID, tuple[int, ...]]:
        """Partitions that may be given to members: they exist, and their state has begun."""
        topics, known = self.world().topics, group.known.initialized
        found: dict[uuid.UUID, tuple[int, ...]] = {}
        for name in sorted(names):
            topic = topics.get(name)
            if topic is not None and topic.topic_id in known:
                count = len(topic.partitions)
                found[topic.topic_id] = tuple(index for index in known[topic.topic_id][1] if index < count)
        return found


def hash_of(partitions: Mapping[uuid.UUID, tuple[int, ...]]) -> int:
    """A number that changes when there are other partitions to be given out; 0 for none."""
    if not partitions:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for topic_id in sorted(partitions):
        digest.update(topic_id.bytes + b"".join(map(_INT32.pack, partitions[topic_id])))
    return int(_INT64.unpack(digest.digest())[0])


def told(call: Call, error: ErrorCode, message: str) -> Answer:
    """An answer to a heartbeat that says what is wrong."""
    return Answer(call, ShareGroupHeartbeatResponse(error_code=error, error_message=message))


def write_of(group_id: str, records: list[ShareGroupRecord], *answers: Answer, follow_up: object = None) -> AnyEffect:
    """One atomic write about a group."""
    return Write(group_id, tuple(records), answers, follow_up=follow_up)
