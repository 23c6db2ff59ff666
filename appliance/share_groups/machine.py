"""Share groups beside the groups of other kinds in one partition of `__consumer_offsets`.

Wraps the machine of the others: what concerns a share group is decided here, everything else goes on to that one. A
group id belongs to one kind of group as long as the group exists. As with consumer groups, a share group is decided
upon only when nothing that was decided before is still on its way into the log (see `must_wait`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Protocol, get_args

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.groups import epoch_admin
from appliance.groups.epoch_context import World
from appliance.groups.refusals import refuse as refuse_other
from appliance.share_groups import admin
from appliance.share_groups.config import ShareGroupConfig
from appliance.share_groups.context import (
    AnyEffect,
    Outcome,
    PersistJob,
    Place,
    ShareAssignmentDue,
    ShareContext,
    ShareSessionOver,
    told,
)
from appliance.share_groups.heartbeat import (
    JOIN_EPOCH,
    HeartbeatWaits,
    ToInitialize,
    assign_due,
    check,
    heartbeat,
    leave,
    session_over,
)
from appliance.share_groups.records import decode_record, encode_record
from appliance.share_groups.refusals import IS_OURS, refuse
from appliance.share_groups.stored import (
    KnownState,
    ShareGroup,
    ShareGroupEpochRecord,
    ShareGroupRecord,
    ShareMemberRecord,
    StoredShareGroups,
)
from appliance.wire.messages import share_group_describe
from appliance.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from appliance.wire.messages.describe_groups import DescribedGroup
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest
from appliance.wire.messages.leave_group import LeaveGroupRequest
from appliance.wire.messages.list_groups import ListedGroup
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from appliance.wire.messages.sync_group import SyncGroupRequest
from appliance.wire.schema import Struct

_RECORDS = get_args(ShareGroupRecord)
_CLASSIC = {
    JoinGroupRequest: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    SyncGroupRequest: ErrorCode.UNKNOWN_MEMBER_ID,
    HeartbeatRequest: ErrorCode.UNKNOWN_MEMBER_ID,
    LeaveGroupRequest: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""What members of classic groups are told who come to a share group; all others: that there is no such group."""


class OtherStored(Protocol):
    """The stored state of the other kinds of groups."""

    def replay(self, record: Any) -> None: ...

    def __contains__(self, group_id: str) -> bool: ...


class OtherGroups(Protocol):
    """The machine of the other kinds of groups. It has more to look at, which goes past this one."""

    @property
    def stored(self) -> OtherStored: ...
    @property
    def deadlines(self) -> Deadlines[Any, Any]: ...

    def loaded(self, now: Moment) -> list[Any]: ...
    def time_anew(self, now: Moment) -> list[Any]: ...
    def must_wait(self, call: Call) -> str | None: ...
    def handle(self, call: Call, now: Moment) -> list[Any]: ...
    def due(self, event: Any, now: Moment) -> list[Any]: ...
    def replay(self, record: Any) -> None: ...
    def written(self, write: Write[Any], now: Moment) -> list[Any]: ...
    def not_written(self, write: Write[Any], error: ErrorCode, now: Moment) -> list[Any]: ...
    def unload(self) -> list[Any]: ...
    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...
    def describe(self, group_id: str) -> DescribedGroup: ...
    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]: ...
    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> list[Any]: ...


class StoredWithShares:
    """The stored state of all kinds of groups."""

    def __init__(self, others: OtherStored) -> None:
        self.others: Any = others
        self.shares = StoredShareGroups()

    def replay(self, record: Any) -> None:
        """Take over a committed record."""
        (self.shares if isinstance(record, _RECORDS) else self.others).replay(record)


def decoding(others: Callable[[bytes, bytes | None], Any]) -> Callable[[bytes, bytes | None], Any]:
    """Read the records of share groups, too."""

    def decode(key: bytes, value: bytes | None) -> Any:
        record = decode_record(key, value)
        return others(key, value) if record is None else record

    return decode


class ShareGroups:
    """Decides for `appliance.coordinator.shard.CoordinatorShard`."""

    def __init__(
        self,
        others: OtherGroups,
        stored: StoredShareGroups,
        config: ShareGroupConfig,
        world: Callable[[], World],
    ) -> None:
        self.others = others
        self.context = ShareContext(others.deadlines, world, config, stored)
        self._waiting: dict[Call, None] = {}
        """Calls whose answer waits for the persister."""

    def __getattr__(self, name: str) -> Any:
        """What concerns the other kinds alone."""
        return getattr(self.others, name)

    @property
    def deadlines(self) -> Deadlines[Any, Any]:
        return self.context.deadlines

    def loaded(self, now: Moment) -> list[AnyEffect]:
        """The stored state is complete: members have one session timeout to be heard; what was begun goes on."""
        self._expect_all(now)
        for group in self.context.stored.groups.values():
            if group.known.deleting:
                self._forget_again(group)
        return self.others.loaded(now)

    def _forget_again(self, group: ShareGroup) -> None:
        """The end of states was asked for, and its outcome not written down: which partitions it was is not known."""
        topics = self.context.world().topics_by_id
        for topic_id in group.known.deleting:
            topic = topics.get(topic_id)
            places = range(len(topic.partitions)) if topic is not None else range(1)
            why = admin.TopicsToForget(None, (topic_id,), DeleteShareGroupOffsetsResponse())
            self.context.jobs.append(
                PersistJob(group.group_id, tuple(Place(topic_id, index) for index in places), -1, why)
            )

    def time_anew(self, now: Moment) -> list[AnyEffect]:
        """Nobody could reach us for a while, which was not the members' fault: they have their full time again."""
        self._expect_all(now)
        return self.others.time_anew(now)

    def _expect_all(self, now: Moment) -> None:
        for group_id, group in self.context.stored.groups.items():
            for member_id in group.members:
                self.context.expect_member(group_id, member_id, now)
            if group.members and group.epoch > group.assignment_epoch:
                self.context.assign_in(group_id, now, 0)

    # Requests

    def must_wait(self, call: Call) -> str | None:
        """The group whose writes have to be finished before this can be decided; None: it need not wait."""
        if type(call.request) in IS_OURS or self._group_of(call.request) in self.context.stored.groups:
            return self._group_of(call.request)
        return self.others.must_wait(call)

    @staticmethod
    def _group_of(request: Any) -> str:
        if isinstance(request, DeleteGroupsRequest):
            return request.groups_names[0]
        return str(getattr(request, "group_id", ""))

    def handle(self, call: Call, now: Moment) -> list[AnyEffect]:
        """Decide a request that names one group."""
        return self._noted(self._decide(call, now))

    def _decide(self, call: Call, now: Moment) -> list[AnyEffect]:
        request, context = call.request, self.context
        group_id = self._group_of(request)
        if isinstance(request, ShareGroupHeartbeatRequest):
            return self._heartbeat(call, request, now)
        group = context.find(group_id)
        if type(request) not in IS_OURS and group is None:
            return self.others.handle(call, now)
        if not group_id:
            return [Answer(call, refuse(call, ErrorCode.INVALID_GROUP_ID, "The group id must be set."))]
        if group is None and isinstance(request, AlterShareGroupOffsetsRequest) and group_id not in self.others.stored:
            # As in Kafka, offsets may be set before the first member comes.
            group = ShareGroup(group_id)
        if group is None:
            return [Answer(call, refuse(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."))]
        match request:
            case DeleteGroupsRequest():
                return admin.delete_group(context, group, call)
            case AlterShareGroupOffsetsRequest() | DeleteShareGroupOffsetsRequest() if not group.is_empty:
                return [Answer(call, refuse(call, ErrorCode.NON_EMPTY_GROUP, "The group is not empty."))]
            case AlterShareGroupOffsetsRequest():
                return admin.alter_offsets(context, group, call, request)
            case DeleteShareGroupOffsetsRequest():
                return admin.delete_offsets(context, group, call, request)
        error = _CLASSIC.get(type(request), ErrorCode.GROUP_ID_NOT_FOUND)
        return [Answer(call, refuse_other(call, error))]

    def _heartbeat(self, call: Call, request: ShareGroupHeartbeatRequest, now: Moment) -> list[AnyEffect]:
        error, message = check(request)
        if error is not ErrorCode.NONE:
            return [told(call, error, message)]
        if request.group_id in self.others.stored:
            return [told(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")]
        if request.member_epoch < JOIN_EPOCH:
            return leave(self.context, call, request, now)
        return heartbeat(self.context, call, request, now)

    # Looking

    def describe(self, group_id: str) -> DescribedGroup:
        """A classic group."""
        described = self.others.describe(group_id)
        if group_id in self.context.stored.groups:
            described.error_message = f"Group {group_id} is not a classic group."
        return described

    def describe_share_group(self, group_id: str) -> share_group_describe.DescribedGroup:
        """One share group and its members."""
        return admin.describe(self.context, group_id)

    def known_state(self, group_id: str) -> KnownState | None:
        """The partitions of a share group whose state is kept; None: there is no such group."""
        group = self.context.find(group_id)
        return None if group is None else group.known

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """All groups that pass the filters."""
        return self.others.list_groups(states, types) + epoch_admin.list_groups(
            self.context.stored.groups.values(), admin.GROUP_TYPE, states, types
        )

    # What happens

    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> list[AnyEffect]:
        """Topics, by name and id, are gone, and so are their offsets and states."""
        effects = self.others.topics_deleted(deleted)
        ids = [topic_id for _, topic_id in deleted]
        for group in self.context.stored.groups.values():
            effects += admin.topics_deleted(self.context, group, ids)
        return effects

    def take_persists(self) -> list[PersistJob]:
        """Work for the persister; each outcome comes back by `persisted`."""
        jobs, self.context.jobs[:] = list(self.context.jobs), []
        return jobs

    def persisted(self, job: PersistJob, outcome: Outcome, now: Moment) -> list[AnyEffect]:
        """The share coordinator has answered, or could not be reached."""
        match job.why:
            case HeartbeatWaits() as waits:
                if any(error is not ErrorCode.NONE for error, _ in outcome.values()):
                    # The next heartbeat asks again.
                    self.context.initializing_since_ms.pop(job.group_id, None)
                effects = admin.begun(self.context, job, outcome, follow_up=waits)
                return self._noted(effects or self._again(waits, now))
            case admin.OffsetsToSet() as why:
                return self._noted(admin.offsets_set(self.context, job, why, outcome))
            case admin.GroupToDelete() | admin.TopicsToForget() as why:
                return self._noted(admin.deleted(self.context, job, why, outcome))
        return []

    def _noted(self, effects: list[AnyEffect]) -> list[AnyEffect]:
        """Know whose answers are in nobody's hands but ours."""
        for effect in effects:
            for answer in (effect,) if isinstance(effect, Answer) else effect.answers:
                self._waiting.pop(answer.call, None)
            match effect:
                case Write(follow_up=HeartbeatWaits(call)):
                    self._waiting[call] = None
                case Write(follow_up=ToInitialize(job)):
                    call_of_job: Call | None = getattr(job.why, "call", None)
                    if call_of_job is not None:
                        self._waiting[call_of_job] = None
        return effects

    def _again(self, waits: HeartbeatWaits, now: Moment) -> list[AnyEffect]:
        request = waits.call.request
        assert isinstance(request, ShareGroupHeartbeatRequest)
        return self._noted(heartbeat(self.context, waits.call, request, now, may_wait=False))

    def due(self, event: Any, now: Moment) -> list[AnyEffect]:
        """A deadline has passed."""
        match event:
            case ShareSessionOver():
                return session_over(self.context, event, now)
            case ShareAssignmentDue(group_id):
                return assign_due(self.context, group_id, now)
        return self.others.due(event, now)

    def replay(self, record: Any) -> None:
        """Take over a committed record."""
        if not isinstance(record, _RECORDS):
            self.others.replay(record)
            return
        match record:
            case ShareMemberRecord(group_id, member_id, None):
                self.context.expect_nothing(group_id, member_id)
            case ShareGroupEpochRecord(group_id, None):
                self.context.initializing_since_ms.pop(group_id, None)
        self.context.stored.replay(record)

    def written(self, write: Write[Any], now: Moment) -> list[AnyEffect]:
        """Go on after a write."""
        match write.follow_up:
            case ToInitialize(job):
                self.context.jobs.append(job)
                return []
            case HeartbeatWaits() as waits:
                return self._again(waits, now)
        return self.others.written(write, now)

    def not_written(self, write: Write[Any], error: ErrorCode, now: Moment) -> list[AnyEffect]:
        """Go on after a write that failed."""
        call: Call | None = None
        match write.follow_up:
            case ToInitialize(job):
                self.context.initializing_since_ms.pop(job.group_id, None)
                call = getattr(job.why, "call", None)
            case HeartbeatWaits(waiting):
                call = waiting
            case _:
                return self.others.not_written(write, error, now)
        return [] if call is None else self._noted([Answer(call, refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE))])

    def unload(self) -> list[AnyEffect]:
        """Send all who wait to the new coordinator."""
        waiting, self._waiting = self._waiting, {}
        ours: list[AnyEffect] = [Answer(call, refuse(call, ErrorCode.NOT_COORDINATOR)) for call in waiting]
        return [*ours, *self.others.unload()]

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""
        return refuse(call, error)

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record) if isinstance(record, _RECORDS) else self.others.encode(record)
