"""Members who leave, are silent for too long, or do not give up in time what others are to get.

Who leaves is removed with one write, and the group's epoch rises; the next target is made when somebody asks, or after
the interval.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.heartbeat import LEAVE_EPOCH
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS
from appliance.streams_groups.context import (
    EveryEffect,
    StreamsContext,
    StreamsRevocationOver,
    StreamsSessionOver,
    told,
)
from appliance.streams_groups.stored import (
    EveryRecord,
    GroupEpochRecord,
    MemberState,
    StreamsGroup,
)
from appliance.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


def leave(context: StreamsContext, call: Call, request: StreamsGroupHeartbeatRequest, now: Moment) -> list[EveryEffect]:
    """Decide a heartbeat that leaves."""
    group = context.find(request.group_id)
    if group is None:
        return [told(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")]
    if request.member_id not in group.members:
        message = f"Member {request.member_id} is not a member of group {request.group_id}."
        return [told(call, ErrorCode.UNKNOWN_MEMBER_ID, message)]
    if request.shutdown_application:
        context.memory(group.group_id).shutdown_by = request.member_id
    response = StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
    return [_removal(context, group, request.member_id, now, Answer(call, response))]


def _removal(
    context: StreamsContext,
    group: StreamsGroup,
    member_id: str,
    now: Moment,
    *answers: Answer,
    only_alone: bool = False,
) -> EveryEffect:
    """The write that removes a member."""
    records: list[EveryRecord] = [
        *group.removed(member_id),
        GroupEpochRecord(
            group.group_id, group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.standby_replicas
        ),
    ]
    memory = context.memory(group.group_id)
    if len(group.members) > 1:
        if not memory.waits_for_members:
            context.assign_in(
                group.group_id, now, context.config.assignment_interval_of(context.entries(group.group_id))
            )
    else:
        # The next one begins anew.
        memory.shutdown_by, memory.waits_for_members = None, False
        context.assign_never(group.group_id)
    return Write(group.group_id, tuple(records), answers, only_alone=only_alone)


def session_over(context: StreamsContext, event: StreamsSessionOver, now: Moment) -> list[EveryEffect]:
    """A member has been silent for too long."""
    group = context.find(event.group_id)
    if group is None or event.member_id not in group.members:
        return []
    # Should something else about the group be on its way just now, we come again.
    context.expect_member(event.group_id, event.member_id, now, RETRY_MS)
    return [_removal(context, group, event.member_id, now, only_alone=True)]


def revocation_over(context: StreamsContext, event: StreamsRevocationOver, now: Moment) -> list[EveryEffect]:
    """A member has not given up its tasks in time: others must not wait any longer."""
    group = context.find(event.group_id)
    current = group.current.get(event.member_id) if group is not None else None
    if group is None or current is None or current.epoch != event.epoch:
        return []
    if current.state is not MemberState.UNREVOKED_TASKS:
        return []
    context.expect_revocation(event.group_id, event.member_id, event.epoch, now, RETRY_MS)
    return [_removal(context, group, event.member_id, now, only_alone=True)]
