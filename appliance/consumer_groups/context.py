"""What the deciding functions of this package share: the world around the groups, and work for helper threads."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Protocol

from appliance.base.config_resources import GROUP
from appliance.base.errors import ErrorCode
from appliance.base.ids import uuid_to_text
from appliance.base.randomness import random_uuid
from appliance.consumer_groups.assignors import ASSIGNORS, Subscriber, Target
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.stored import AnyRecord, ConsumerGroup, StoredAllGroups
from appliance.consumer_groups.topic_regex import TopicRegex
from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, OtherEvent
from appliance.groups.group import Group
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

AnyEffect = Effect[AnyRecord]

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


@dataclass(frozen=True, slots=True)
class MemberSessionOver(OtherEvent):
    """A member has not been heard for its session timeout."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RevocationOver(OtherEvent):
    """A member had its time to give partitions up."""

    group_id: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RejoinOver(OtherEvent):
    """A classic member had its time to join again, or to ask what it has."""

    group_id: str
    member_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DowngradeDue(OtherEvent):
    """A group has just become a classic one: its members are to join anew."""

    group_id: str


@dataclass(frozen=True, slots=True)
class AssignmentDue(OtherEvent):
    """Enough time has passed since the last target."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ResultDue(OtherEvent):
    """A helper thread has found something."""

    group_id: str
    job: Job


@dataclass(frozen=True, slots=True)
class AssignmentJob:
    """The target of a group that is too large to be assigned on the loop."""

    group_id: str
    epoch: int
    assignor: str
    subscribers: list[Subscriber]
    partitions: Mapping[uuid.UUID, int]

    def run(self) -> dict[str, Target]:
        """Runs in a helper thread."""
        return ASSIGNORS[self.assignor](self.subscribers, self.partitions)


@dataclass(frozen=True, slots=True)
class RegexJob:
    """The topics that a group's regular expressions meet."""

    group_id: str
    regexes: tuple[str, ...]
    names: Mapping[str, object]
    version: int
    may_describe: Callable[[str], bool] | None = None
    """Of the member that asks: what it may not know of the group does not find."""

    def run(self) -> dict[str, tuple[str, ...]]:
        """Runs in a helper thread."""
        found = {regex: TopicRegex(regex).among(self.names) for regex in self.regexes}
        may = self.may_describe
        return found if may is None else {regex: tuple(filter(may, topics)) for regex, topics in found.items()}


Job = AssignmentJob | RegexJob


@dataclass(slots=True)
class Memory:
    """What is known of a group beside the log."""

    seen_topics: object = None
    """The metadata's topics when the group was last compared with them."""
    regexes_asked_ms: int | None = None
    jobs: dict[type[Job], Job] = field(default_factory=dict)
    """By kind: what a helper thread works at, or has worked at until the result is in the log."""
    results: dict[type[Job], object] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerContext:
    """The consumer groups of one partition of `__consumer_offsets`."""

    classic: Context
    stored: StoredAllGroups
    config: ConsumerGroupConfig
    world: Callable[[], World]
    memories: dict[str, Memory] = field(default_factory=dict)
    upgrading: dict[str, None] = field(default_factory=dict)
    """Groups that are, or may still be, on their way into the log as new ones or upgraded: requests wait for that."""
    downgrading: dict[str, Group] = field(default_factory=dict)
    """What groups will be as classic ones, should the write that makes them so be committed."""
    jobs: list[Job] = field(default_factory=list)
    """Work for a helper thread, taken by whoever owns the machine."""

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self.stored.consumer_groups.get(group_id)

    def new_member_id(self) -> str:
        """An id for a member that comes without one."""
        return uuid_to_text(random_uuid(self.classic.randomness))

    def memory(self, group_id: str) -> Memory:
        return self.memories.setdefault(group_id, Memory())

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

    # Deadlines

    def expect_member(self, group_id: str, member_id: str, now: Moment, timeout_ms: int | None = None) -> None:
        """Hear of this member within the time, or it is removed."""
        if timeout_ms is None:
            timeout_ms = self.config.session_timeout_of(self.entries(group_id))
        self._set("member", group_id, member_id, now, timeout_ms, MemberSessionOver(group_id, member_id))

    def expect_revocation(self, group_id: str, member_id: str, epoch: int, now: Moment, timeout_ms: int) -> None:
        event = RevocationOver(group_id, member_id, epoch)
        self._set("revocation", group_id, member_id, now, timeout_ms, event)

    def expect_no_revocation(self, group_id: str, member_id: str) -> None:
        self.classic.deadlines.cancel(("revocation", group_id, member_id))

    def expect_rejoin(self, group_id: str, member_id: str, epoch: int, now: Moment, timeout_ms: int) -> None:
        event = RejoinOver(group_id, member_id, epoch)
        self._set("rejoin", group_id, member_id, now, timeout_ms, event)

    def awaits_rejoin(self, group_id: str, member_id: str) -> bool:
        return ("rejoin", group_id, member_id) in self.classic.deadlines

    def expect_no_rejoin(self, group_id: str, member_id: str) -> None:
        self.classic.deadlines.cancel(("rejoin", group_id, member_id))

    def expect_nothing(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for kind in ("member", "revocation", "rejoin"):
            self.classic.deadlines.cancel((kind, group_id, member_id))

    def _set(self, kind: str, group_id: str, member_id: str, now: Moment, ms: int, event: OtherEvent) -> None:
        self.classic.deadlines.set((kind, group_id, member_id), now.monotonic_ms + ms, event)

    def assign_in(self, group_id: str, now: Moment, delay_ms: int) -> None:
        """Look after a new target then."""
        key = ("assignment", group_id)
        self.classic.deadlines.set(key, now.monotonic_ms + delay_ms, AssignmentDue(group_id))

    def apply(self, job: Job, now: Moment, delay_ms: int = 0) -> None:
        """Use the result of a job."""
        key = ("result", type(job).__name__, job.group_id)
        self.classic.deadlines.set(key, now.monotonic_ms + delay_ms, ResultDue(job.group_id, job))

    def job_over(self, job: Job) -> None:
        """The result is in the log, or there is none, or it is not needed any more."""
        memory = self.memory(job.group_id)
        if memory.jobs.get(type(job)) is job:
            del memory.jobs[type(job)]
            memory.results.pop(type(job), None)
        self.classic.deadlines.cancel(("result", type(job).__name__, job.group_id))


def told(call: Call, error: ErrorCode, message: str) -> Answer:
    """An answer to a heartbeat that says what is wrong."""
    return Answer(call, ConsumerGroupHeartbeatResponse(error_code=error, error_message=message))


@dataclass(frozen=True, slots=True)
class JobApplied:
    """Follow-up of the records that a job led to."""

    job: Job


def write_of(group_id: str, records: list[AnyRecord], *answers: Answer, follow_up: object = None) -> AnyEffect:
    """One atomic write about a group."""
    return Write(group_id, tuple(records), answers, follow_up=follow_up)
