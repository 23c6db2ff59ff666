"""All groups of one partition of `__consumer_offsets`, those of Kafka Streams among them.

Like a consumer group, one of Kafka Streams is decided upon only when nothing that was decided before is still on its
way into the log, so a decision needs to know nothing but what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from appliance.base.errors import ErrorCode, invariant
from appliance.base.randomness import Randomness
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.context import AnyEffect
from appliance.consumer_groups.heartbeat import LEAVE_EPOCH
from appliance.consumer_groups.machine import AllGroupsMachine
from appliance.consumer_groups.offsets import may_fetch
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups import epoch_admin
from appliance.groups import offsets as classic_offsets
from appliance.groups.config import GroupConfig
from appliance.groups.context import Event, OtherGroup
from appliance.groups.epoch_context import World
from appliance.groups.refusals import refusal
from appliance.streams_groups import describing, leaving, offsets
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.context import (
    AssignmentJob,
    EveryEffect,
    StreamsAssignmentDue,
    StreamsContext,
    StreamsRevocationOver,
    StreamsSessionOver,
    told,
)
from appliance.streams_groups.heartbeat import check, heartbeat
from appliance.streams_groups.records import encode_record
from appliance.streams_groups.stored import (
    EveryRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    StoredEveryGroup,
    StreamsGroup,
)
from appliance.streams_groups.targets import assign_due, job_done
from appliance.streams_groups.topology import InternalTopic, InvalidTopology
from appliance.wire.messages import describe_groups, streams_group_describe
from appliance.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest
from appliance.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from appliance.wire.messages.list_groups import ListedGroup
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.offset_delete import OffsetDeleteRequest
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from appliance.wire.messages.sync_group import SyncGroupRequest
from appliance.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from appliance.wire.messages.write_txn_markers import WritableTxnMarker

MANY_MEMBERS_SINCE = 3
"""LeaveGroup."""


class _Others(Mapping[str, OtherGroup]):
    """Groups that are not classic ones, for what is the same for all of them: their offsets."""

    def __init__(self, stored: StoredEveryGroup) -> None:
        self._stored = stored

    def __getitem__(self, group_id: str) -> OtherGroup:
        group: OtherGroup | None = self._stored.streams_groups.get(group_id)
        return self._stored.consumer_groups[group_id] if group is None else group

    def __iter__(self) -> Any:
        return iter([*self._stored.consumer_groups, *self._stored.streams_groups])

    def __len__(self) -> int:
        return len(self._stored.consumer_groups) + len(self._stored.streams_groups)


class EveryGroupMachine(AllGroupsMachine):
    """Decides for `appliance.coordinator.shard.CoordinatorShard`."""

    def __init__(
        self,
        config: GroupConfig,
        consumer_config: ConsumerGroupConfig,
        streams_config: StreamsGroupConfig,
        randomness: Randomness,
        stored: StoredEveryGroup,
        world: Callable[[], World],
    ) -> None:
        super().__init__(config, consumer_config, randomness, stored, world)
        self.classic.context.others = _Others(stored)
        self._streams = StreamsContext(self.deadlines, world, streams_config, self.classic.context, stored)

    def loaded(self, now: Moment) -> list[AnyEffect]:
        """The stored state is complete: members have one session timeout to be heard."""
        self._expect_streams(now)
        return super().loaded(now)

    def time_anew(self, now: Moment) -> list[AnyEffect]:
        """Nobody could reach us for a while, which was not the members' fault: they have their full time again."""
        self._expect_streams(now)
        return super().time_anew(now)

    def _expect_streams(self, now: Moment) -> None:
        context = self._streams
        for group_id, group in context.stored.streams_groups.items():
            for member_id, member in group.members.items():
                current = group.current_of(member_id)
                context.expect_member(group_id, member_id, now)
                if current.state is MemberState.UNREVOKED_TASKS:
                    context.expect_revocation(group_id, member_id, current.epoch, now, member.rebalance_timeout_ms)
            if group.members and group.epoch > group.assignment_epoch:
                context.assign_in(group_id, now, 0)

    # Requests

    def must_wait(self, call: Call) -> str | None:
        """The group whose writes have to be finished before this can be decided; None: it need not wait."""
        request = call.request
        if isinstance(request, StreamsGroupHeartbeatRequest):
            return request.group_id
        group_id: str | None = getattr(request, "group_id", None)
        return group_id if group_id in self._streams.stored.streams_groups else super().must_wait(call)

    def handle(self, call: Call, now: Moment) -> list[AnyEffect]:
        """Decide a request that names one group."""
        return list(self._handle(call, now))  # type: ignore[arg-type]

    def _handle(self, call: Call, now: Moment) -> list[EveryEffect]:
        context, request = self._streams, call.request
        if isinstance(request, StreamsGroupHeartbeatRequest):
            return self._streams_heartbeat(call, request, now)
        if isinstance(request, WritableTxnMarker):
            return list(super().handle(call, now))
        (group_id,) = request.groups_names if isinstance(request, DeleteGroupsRequest) else (request.group_id,)  # type: ignore[attr-defined]
        group = context.find(group_id)
        if group is None:
            return list(super().handle(call, now))
        match request:
            case JoinGroupRequest() | ConsumerGroupHeartbeatRequest():
                return self._other_protocol(group, call, now)
            case LeaveGroupRequest() if call.version >= MANY_MEMBERS_SINCE:
                return [Answer(call, _nobody_leaves(request))]
            case SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest():
                return [refusal(call, ErrorCode.UNKNOWN_MEMBER_ID)]
            case OffsetCommitRequest():
                return offsets.commit(context, group, call, request, now)
            case TxnOffsetCommitRequest():
                return offsets.commit_in_transaction(context, group, call, request, now)
            case OffsetDeleteRequest():
                return list(classic_offsets.delete_unused(context.classic, call, request, group.may_read))
            case DeleteGroupsRequest():
                return epoch_admin.delete(context.classic, group, call)
        invariant(False, f"{type(request).__name__} is no request to a group")
        return []

    def _streams_heartbeat(self, call: Call, request: StreamsGroupHeartbeatRequest, now: Moment) -> list[EveryEffect]:
        error, message = check(request)
        if error is not ErrorCode.NONE:
            return [told(call, error, message)]
        if request.member_epoch == LEAVE_EPOCH:
            return leaving.leave(self._streams, call, request, now)
        return heartbeat(self._streams, call, request, now)

    def _other_protocol(self, group: StreamsGroup, call: Call, now: Moment) -> list[EveryEffect]:
        """Only an empty group makes place, and for a classic one alone."""
        if isinstance(call.request, JoinGroupRequest):
            if not group.is_empty:
                return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
            end: EveryEffect = Write(group.group_id, tuple(group.tombstones()))
            return [end, *super().handle(call, now)]
        message = f"Group {group.group_id} is not a consumer group."
        return [
            Answer(call, ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message))
        ]

    # Looking

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; with `require_stable` only those that no open transaction may change."""
        group = self._streams.find(request.group_id)
        if group is None:
            return super().fetch_offsets(request, require_stable=require_stable)
        error = may_fetch(group, request)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return self.classic.fetch_offsets(request, require_stable=require_stable)

    def describe(self, group_id: str) -> describe_groups.DescribedGroup:
        """One classic group and its members."""
        if self._streams.find(group_id) is not None:
            return epoch_admin.describe_as_classic(group_id)
        return super().describe(group_id)

    def describe_streams_group(self, group_id: str) -> streams_group_describe.DescribedGroup:
        """One group of Kafka Streams and its members."""
        return describing.describe(self._streams, group_id)

    def missing_internal_topics(self, group_id: str) -> tuple[InternalTopic, ...]:
        """What a group needs and is not there."""
        group = self._streams.find(group_id)
        if group is None or group.topology is None:
            return ()
        try:
            return self._streams.configured(group_id, group.topology).to_create
        except InvalidTopology:
            return ()

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """All groups that pass the filters."""
        return super().list_groups(states, types) + epoch_admin.list_groups(
            self._streams.stored.streams_groups.values(), describing.GROUP_TYPE, states, types
        )

    # What happens

    def take_jobs(self) -> list[Any]:
        """Work for helper threads; each result comes back by `job_done`."""
        jobs: list[Any] = super().take_jobs()
        jobs += self._streams.jobs
        self._streams.jobs.clear()
        return jobs

    def job_done(self, job: Any, result: object, now: Moment) -> list[AnyEffect]:
        """A helper thread has finished; an exception in place of a result means that it could not."""
        if not isinstance(job, AssignmentJob):
            return super().job_done(job, result, now)
        job_done(self._streams, job, result, now)
        return []

    def due(self, event: Event, now: Moment) -> list[AnyEffect]:
        """A deadline has passed."""
        context = self._streams
        match event:
            case StreamsSessionOver():
                return list(leaving.session_over(context, event, now))  # type: ignore[arg-type]
            case StreamsRevocationOver():
                return list(leaving.revocation_over(context, event, now))  # type: ignore[arg-type]
            case StreamsAssignmentDue(group_id):
                return list(assign_due(context, group_id, now))  # type: ignore[arg-type]
        return super().due(event, now)

    def replay(self, record: EveryRecord) -> None:
        """Take over a committed record."""
        context = self._streams
        match record:
            case MemberRecord(group_id, member_id, None):
                context.expect_nothing(group_id, member_id)
            case GroupEpochRecord(group_id, None):
                context.memories.pop(group_id, None)
                context.assign_never(group_id)
        super().replay(record)  # type: ignore[arg-type]

    def encode(self, record: EveryRecord) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record)


def _nobody_leaves(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Members of a group of Kafka Streams leave otherwise."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for each in request.members
        ]
    )
