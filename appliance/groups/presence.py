"""Heartbeat (versions 0 to 4) and LeaveGroup (0 to 5), and members who are not heard any more.

A member lives as long as it sends heartbeats or commits within its session timeout, or waits for an answer of ours.
LeaveGroup: v3 many members at once, static ones by their instance id alone, as an administrator does it (KIP-345)
"""

from __future__ import annotations

from dataclasses import replace

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.barrier import after_pending_removal, after_removal, remove_member
from appliance.groups.context import Context, GroupEffect, SessionOver
from appliance.groups.group import Group
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

LEAVE_MANY_SINCE = 3


def heartbeat(context: Context, call: Call, request: HeartbeatRequest, now: Moment) -> list[GroupEffect]:
    """Decide a Heartbeat."""
    if request.group_id == "":
        return [refusal(call, ErrorCode.INVALID_GROUP_ID)]
    group = context.groups.get(request.group_id)
    if group is None:
        return [refusal(call, ErrorCode.UNKNOWN_MEMBER_ID)]
    error = group.identify(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    context.expect_heartbeat(group, group.members[request.member_id], now)
    if group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    return [Answer(call, HeartbeatResponse(error_code=error))]


def leave(context: Context, call: Call, request: LeaveGroupRequest, now: Moment) -> list[GroupEffect]:
    """Decide a LeaveGroup."""
    if request.group_id == "":
        return [refusal(call, ErrorCode.INVALID_GROUP_ID)]
    leaving = request.members
    if call.version < LEAVE_MANY_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]
    group = context.groups.get(request.group_id)
    effects: list[GroupEffect] = []
    responses: list[MemberResponse] = []
    size_before = len(group.members) if group is not None else 0
    for identity in leaving:
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error, refusals = _leave_one(context, group, identity)
            effects += refusals
        responses.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    response = LeaveGroupResponse(members=responses)
    if call.version < LEAVE_MANY_SINCE:
        response = LeaveGroupResponse(error_code=responses[0].error_code)
    if group is not None:
        removal = after_removal if len(group.members) < size_before else after_pending_removal
        effects += removal(context, group, now)
    return _answer_when_written(effects, Answer(call, response))


def _answer_when_written(effects: list[GroupEffect], answer: Answer) -> list[GroupEffect]:
    """If the group is empty now and the log is to say so, the answer waits for it."""
    for index, effect in enumerate(effects):
        if isinstance(effect, Write):
            effects[index] = replace(effect, answers=(answer,))
            return effects
    return [*effects, answer]


def _leave_one(context: Context, group: Group, identity: MemberIdentity) -> tuple[ErrorCode, list[GroupEffect]]:
    member_id = identity.member_id
    if member_id == "":
        # An administrator knows a static member by its instance id only.
        member_id = group.static_members.get(identity.group_instance_id or "", "")
        if member_id == "":
            return ErrorCode.UNKNOWN_MEMBER_ID, []
    elif member_id not in group.pending_members:
        error = group.identify(member_id, identity.group_instance_id)
        if error is not ErrorCode.NONE:
            return error, []
    return ErrorCode.NONE, remove_member(context, group, member_id)


def session_over(context: Context, event: SessionOver, now: Moment) -> list[GroupEffect]:
    """A member, or an id that was given out, has been silent for too long."""
    group = context.groups.get(event.group_id)
    if group is None:
        return []
    member = group.members.get(event.member_id)
    if member is None:
        if event.member_id not in group.pending_members:
            return []
        return remove_member(context, group, event.member_id) + after_pending_removal(context, group, now)
    if member.may_be_silent:
        return []
    return remove_member(context, group, event.member_id) + after_removal(context, group, now)
