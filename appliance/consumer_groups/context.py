"""What the deciding functions of this package share: the world around the groups, and work for helper threads."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from appliance.base.errors import ErrorCode
from appliance.base.ids import uuid_to_text
from appliance.base.randomness import random_uuid
from appliance.consumer_groups.assignors import ASSIGNORS, Subscriber, Target
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.stored import AnyRecord, ConsumerGroup, MemberState, StoredAllGroups
from appliance.consumer_groups.topic_regex import TopicRegex
from appliance.coordinator.calls import Answer, Call, Effect
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context
from appliance.groups.epoch_context import EpochContext, OfOneEpoch, OfOneGroup, OfOneMember
from appliance.groups.group import Group
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

AnyEffect = Effect[AnyRecord]


class MemberSessionOver(OfOneMember):
    """A member has not been heard for its session timeout."""

    __slots__ = ()


class RevocationOver(OfOneEpoch):
    """A member had its time to give partitions up."""

    __slots__ = ()


class RejoinOver(OfOneEpoch):
    """A classic member had its time to join again, or to ask what it has."""

    __slots__ = ()


class DowngradeDue(OfOneGroup):
    """A group has just become a classic one: its members are to join anew."""

    __slots__ = ()


class AssignmentDue(OfOneGroup):
    """Enough time has passed since the last target."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ResultDue(OfOneGroup):
    """A helper thread has found something."""

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
class ConsumerContext(EpochContext):
    """The consumer groups of one partition of `__consumer_offsets`."""

    KIND: ClassVar[str] = "consumer"
    SESSION_OVER: ClassVar[type[MemberSessionOver]] = MemberSessionOver
    REVOCATION_OVER: ClassVar[type[RevocationOver]] = RevocationOver
    ASSIGNMENT_DUE: ClassVar[type[AssignmentDue]] = AssignmentDue

    config: ConsumerGroupConfig
    classic: Context
    stored: StoredAllGroups
    ahead: dict[str, ConsumerGroup] = field(default_factory=dict)
    """Groups as they will be when what is on its way into the log is committed (`foresight`)."""
    memories: dict[str, Memory] = field(default_factory=dict)
    upgrading: dict[str, None] = field(default_factory=dict)
    """Groups that are, or may still be, on their way into the log as new ones or upgraded: requests wait for that."""
    downgrading: dict[str, Group] = field(default_factory=dict)
    """What groups will be as classic ones, should the write that makes them so be committed."""
    jobs: list[Job] = field(default_factory=list)
    """Work for a helper thread, taken by whoever owns the machine."""

    def find(self, group_id: str) -> ConsumerGroup | None:
        """What decisions about a group rest on: with what is on its way into the log, where that is foreseen."""
        return self.ahead.get(group_id) or self.stored.consumer_groups.get(group_id)

    def committed(self, group_id: str) -> ConsumerGroup | None:
        """The group for whoever only looks."""
        return self.stored.consumer_groups.get(group_id)

    def new_member_id(self) -> str:
        """An id for a member that comes without one."""
        return uuid_to_text(random_uuid(self.classic.randomness))

    def memory(self, group_id: str) -> Memory:
        return self.memories.setdefault(group_id, Memory())

    def expect_rejoin(self, group_id: str, member_id: str, epoch: int, now: Moment, timeout_ms: int) -> None:
        event = RejoinOver(group_id, member_id, epoch)
        self.deadlines.set(("rejoin", group_id, member_id), now.monotonic_ms + timeout_ms, event)

    def awaits_rejoin(self, group_id: str, member_id: str) -> bool:
        return ("rejoin", group_id, member_id) in self.deadlines

    def expect_no_rejoin(self, group_id: str, member_id: str) -> None:
        self.deadlines.cancel(("rejoin", group_id, member_id))

    def expect_anew(self, group: ConsumerGroup, now: Moment) -> None:
        """All members of a group have their full time from now on, and its target is made if one is missing."""
        group_id = group.group_id
        for member_id, member in group.members.items():
            current = group.current_of(member_id)
            timeout_ms = None if member.classic is None else member.classic.session_timeout_ms
            self.expect_member(group_id, member_id, now, timeout_ms)
            if member.classic is None and current.state is MemberState.UNREVOKED_PARTITIONS:
                self.expect_revocation(group_id, member_id, current.epoch, now, member.rebalance_timeout_ms)
        if group.members and group.epoch > group.assignment_epoch:
            self.assign_in(group_id, now, 0)

    def expect_nothing(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        EpochContext.expect_nothing(self, group_id, member_id)
        self.expect_no_rejoin(group_id, member_id)

    def apply(self, job: Job, now: Moment, delay_ms: int = 0) -> None:
        """Use the result of a job."""
        key = ("result", type(job).__name__, job.group_id)
        self.deadlines.set(key, now.monotonic_ms + delay_ms, ResultDue(job.group_id, job))

    def job_over(self, job: Job) -> None:
        """The result is in the log, or there is none, or it is not needed any more."""
        memory = self.memory(job.group_id)
        if memory.jobs.get(type(job)) is job:
            del memory.jobs[type(job)]
            memory.results.pop(type(job), None)
        self.deadlines.cancel(("result", type(job).__name__, job.group_id))


def told(call: Call, error: ErrorCode, message: str) -> Answer:
    """An answer to a heartbeat that says what is wrong."""
    return Answer(call, ConsumerGroupHeartbeatResponse(error_code=error, error_message=message))


@dataclass(frozen=True, slots=True)
class JobApplied:
    """Follow-up of the records that a job led to."""

    job: Job
