"""SyncGroup, versions 0 to 5.

- The leader's request brings everybody's assignments; they are stored before any member is told its own.
- A member of a stable group is told its assignment again.
- Who does not ask in time is removed (KAFKA-13435's rule: one rebalance timeout from the end of the join phase).
v3 static members (KIP-345) · v5 protocol type and name are checked (KIP-559)
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.failures import told
from appliance.coordinator.moment import Moment
from appliance.groups.barrier import fail_sync, prepare_rebalance, rebalance_or_complete, remove_member
from appliance.groups.context import Context, GroupEffect, SyncOver, sync_key
from appliance.groups.group import Group
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.groups.stored import GenerationRecord
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_SINCE = 5


@dataclass(frozen=True, slots=True)
class GenerationStored:
    """Follow-up of the record with the leader's assignments."""

    group_id: str
    generation_id: int


def sync(context: Context, call: Call, request: SyncGroupRequest, now: Moment) -> list[GroupEffect]:
    """Decide a SyncGroup."""
    if call.version >= PROTOCOL_REQUIRED_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if request.group_id == "":
        return [refusal(call, ErrorCode.INVALID_GROUP_ID)]
    group = context.groups.get(request.group_id)
    error = _checked(request, group)
    if group is None or error is not ErrorCode.NONE:
        return [refusal(call, error)]
    member = group.members[request.member_id]
    group.pending_sync.pop(member.member_id, None)
    if not group.pending_sync:
        context.deadlines.cancel(sync_key(group))
    if group.state is GroupState.STABLE:
        return [Answer(call, _assigned(group, member.assignment))]
    superseded, member.awaiting_sync = member.awaiting_sync, call
    effects: list[GroupEffect] = [] if superseded is None else [refusal(superseded, ErrorCode.REBALANCE_IN_PROGRESS)]
    if member.member_id == group.leader_id and group.storing_generation != group.generation_id:
        group.storing_generation = group.generation_id
        assignments = {each.member_id: each.assignment for each in request.assignments}
        record = GenerationRecord(group.group_id, group.as_stored(assignments))
        follow_up = GenerationStored(group.group_id, group.generation_id)
        effects.append(Write(group.group_id, (record,), follow_up=follow_up))
    return effects


def _checked(request: SyncGroupRequest, group: Group | None) -> ErrorCode:
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.identify(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and group.protocol_name not in (None, request.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def generation_stored(context: Context, done: GenerationStored, now: Moment) -> list[GroupEffect]:
    """The assignments are in the log: the generation is stable, unless a new rebalance has begun since."""
    group = _still_completing(context, done)
    if group is None:
        return []
    generation = context.stored.generations[group.group_id]
    for stored in generation.members:
        group.members[stored.member_id].assignment = stored.assignment
    effects: list[GroupEffect] = []
    for member in group.members.values():
        call = group.take_sync(member)
        if call is not None:
            effects.append(Answer(call, _assigned(group, member.assignment)))
            context.expect_heartbeat(group, member, now)
    group.enter(GroupState.STABLE, now.wall_ms)
    return effects


def generation_not_stored(context: Context, done: GenerationStored, error: ErrorCode, now: Moment) -> list[GroupEffect]:
    """Nobody may own anything of this generation: all join again."""
    group = _still_completing(context, done)
    if group is None:
        return []
    return fail_sync(context, group, told(error), now) + rebalance_or_complete(context, group, now)


def sync_over(context: Context, event: SyncOver, now: Moment) -> list[GroupEffect]:
    """Go on without the members that joined, but did not ask what they own."""
    group = context.groups.get(event.group_id)
    if group is None or group.generation_id != event.generation_id or not group.pending_sync:
        return []
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return []
    effects: list[GroupEffect] = []
    for member_id in list(group.pending_sync):
        effects += remove_member(context, group, member_id)
    return effects + prepare_rebalance(context, group, now)


def _still_completing(context: Context, done: GenerationStored) -> Group | None:
    group = context.groups.get(done.group_id)
    if group is None or group.state is not GroupState.COMPLETING_REBALANCE:
        return None
    return group if group.generation_id == done.generation_id else None


def _assigned(group: Group, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
