"""JoinGroup, versions 0 to 9.

- A dynamic member without an id is told one and must come back with it (from v4, KIP-394), so that a client which gives
  up between two tries leaves nobody behind.
- A static member without an id takes the place of the member with its instance id, who is fenced (KIP-345). In a stable
  group that needs no rebalance, unless the group's protocol would change.
- A member that is known rejoins: the leader, or changed metadata, begins a rebalance; any other is told again what it
  may have missed.
v0 no rebalance timeout · v5 static members · v7 null protocol · v9 a leader that need not assign again (KIP-814)
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.failures import told
from appliance.coordinator.moment import Moment
from appliance.groups.barrier import (
    complete_if_all_joined,
    joined,
    prepare_rebalance,
    rebalance_or_complete,
    remove_member,
)
from appliance.groups.context import Context, GroupEffect
from appliance.groups.group import Group
from appliance.groups.members import Member, Protocols, protocols_of
from appliance.groups.refusals import refusal, refused_join
from appliance.groups.states import GroupState
from appliance.groups.stored import GenerationRecord
from appliance.wire.messages.join_group import JoinGroupRequest

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """Follow-up of the record with a static member's new id, and what to go back to if it is not written."""

    group_id: str
    member_id: str
    old_member_id: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    old_leader_id: str
    call: Call


def join(context: Context, call: Call, request: JoinGroupRequest, now: Moment) -> list[GroupEffect]:
    """Decide a JoinGroup."""
    if request.group_id == "":
        return [refusal(call, ErrorCode.INVALID_GROUP_ID)]
    config = context.config
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return [refusal(call, ErrorCode.INVALID_SESSION_TIMEOUT)]
    group = context.find(request.group_id)
    if group is None:
        if request.member_id != "":
            return [Answer(call, refused_join(call.version, request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))]
        group = Group(request.group_id)
    if not _has_room(context, group, request.member_id):
        effects = remove_member(context, group, request.member_id)
        effects.append(Answer(call, refused_join(call.version, "", ErrorCode.GROUP_MAX_SIZE_REACHED)))
        return effects + complete_if_all_joined(context, group, now)
    if not group.supports(request.protocol_type, protocols_of(request.protocols)):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if request.member_id == "":
        context.groups[group.group_id] = group
        return _join_without_id(context, group, call, request, now)
    return _join_with_id(context, group, call, request, now)


def _has_room(context: Context, group: Group, member_id: str) -> bool:
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        # Those who are back are counted: should there be too many, the last to come back are left out.
        is_waiting = member is not None and member.awaiting_join is not None
        return is_waiting or group.awaiting_join_count < context.config.max_size
    return member is not None or len(group.members) < context.config.max_size


def _join_without_id(
    context: Context, group: Group, call: Call, request: JoinGroupRequest, now: Moment
) -> list[GroupEffect]:
    instance_id = request.group_instance_id
    if instance_id is not None:
        member_id = context.new_member_id(instance_id)
        old_member_id = group.static_members.get(instance_id)
        if old_member_id is not None:
            return _replace_static(context, group, old_member_id, member_id, call, request, now)
        return _add(context, group, member_id, call, request, now)
    member_id = context.new_member_id(call.client_id)
    if call.version < MEMBER_ID_REQUIRED_SINCE:
        return _add(context, group, member_id, call, request, now)
    if len(group.pending_members) >= context.config.pending_members_max:
        return [Answer(call, refused_join(call.version, "", ErrorCode.GROUP_MAX_SIZE_REACHED))]
    group.pending_members[member_id] = None
    context.expect(group.group_id, member_id, now, request.session_timeout_ms)
    return [Answer(call, refused_join(call.version, member_id, ErrorCode.MEMBER_ID_REQUIRED))]


def _join_with_id(
    context: Context, group: Group, call: Call, request: JoinGroupRequest, now: Moment
) -> list[GroupEffect]:
    member_id = request.member_id
    if member_id in group.pending_members and request.group_instance_id is None:
        return _add(context, group, member_id, call, request, now)
    error = group.identify(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return [Answer(call, refused_join(call.version, member_id, error))]
    member = group.members[member_id]
    has_changed = member.protocols != protocols_of(request.protocols)
    match group.state:
        case GroupState.COMPLETING_REBALANCE if not has_changed:
            # Its first answer was lost perhaps; nothing is new.
            return [Answer(call, joined(group, member, call.version))]
        case GroupState.STABLE if not has_changed and member_id != group.leader_id:
            return [Answer(call, joined(group, member, call.version))]
        case _:
            # A leader may know of a change that does not show in its metadata, such as new partitions.
            effects = _rejoin(group, member, call, request)
            return effects + rebalance_or_complete(context, group, now)


def _add(
    context: Context, group: Group, member_id: str, call: Call, request: JoinGroupRequest, now: Moment
) -> list[GroupEffect]:
    member = Member(
        member_id,
        request.group_instance_id,
        call.client_id,
        call.client_host,
        _rebalance_timeout_ms(call, request),
        request.session_timeout_ms,
        request.protocol_type,
        protocols_of(request.protocols),
        is_new=True,
        awaiting_join=call,
    )
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member)
    context.expect_heartbeat(group, member, now, context.config.new_member_join_timeout_ms)
    return rebalance_or_complete(context, group, now)


def _rejoin(group: Group, member: Member, call: Call, request: JoinGroupRequest) -> list[GroupEffect]:
    """Take over what a known member says now, and keep its request."""
    group.update(
        member, protocols_of(request.protocols), _rebalance_timeout_ms(call, request), request.session_timeout_ms
    )
    superseded = group.park_join(member, call)
    return [] if superseded is None else [refusal(superseded, ErrorCode.REBALANCE_IN_PROGRESS)]


def _replace_static(
    context: Context,
    group: Group,
    old_member_id: str,
    member_id: str,
    call: Call,
    request: JoinGroupRequest,
    now: Moment,
) -> list[GroupEffect]:
    member = group.members[old_member_id]
    undo = StaticMemberReplaced(
        group.group_id,
        member_id,
        old_member_id,
        member.protocols,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        group.leader_id or "",
        call,
    )
    fenced = [group.take_join(member), group.take_sync(member)]
    effects: list[GroupEffect] = [refusal(each, ErrorCode.FENCED_INSTANCE_ID) for each in fenced if each is not None]
    _rename(context, group, member, member_id, now)
    effects += _rejoin(group, member, call, request)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id just now.
        return effects + prepare_rebalance(context, group, now)
    if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol_name:
        return effects + rebalance_or_complete(context, group, now)
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    record = GenerationRecord(group.group_id, group.as_stored(assignments))
    return [*effects, Write(group.group_id, (record,), follow_up=undo)]


def static_member_stored(context: Context, done: StaticMemberReplaced, now: Moment) -> list[GroupEffect]:
    """The new id is in the log: its owner may use it. If a rebalance has begun since, its end answers the request."""
    group, member = _still_waiting(context, done)
    if group is None or member is None or group.state is not GroupState.STABLE:
        return []
    group.take_join(member)
    context.expect_heartbeat(group, member, now)
    if done.call.version >= SKIP_ASSIGNMENT_SINCE:
        is_leader = member.member_id == group.leader_id
        return [Answer(done.call, joined(group, member, done.call.version, skip_assignment=is_leader))]
    # An older client that finds itself leader would assign anew, without a rebalance: it is shown the leader before.
    response = joined(group, member, done.call.version)
    response.leader, response.members = done.old_leader_id, []
    return [Answer(done.call, response)]


def static_member_not_stored(
    context: Context, done: StaticMemberReplaced, error: ErrorCode, now: Moment
) -> list[GroupEffect]:
    """Take the old id back, unless the record may yet be written; the client tries again without an id."""
    group, member = _still_waiting(context, done)
    if group is None or member is None or group.state is not GroupState.STABLE:
        return []
    group.take_join(member)
    response = refused_join(done.call.version, "", told(error))
    if error is not ErrorCode.REQUEST_TIMED_OUT:
        group.update(member, done.old_protocols, done.old_rebalance_timeout_ms, done.old_session_timeout_ms)
        _rename(context, group, member, done.old_member_id, now)
    return [Answer(done.call, response)]


def _still_waiting(context: Context, done: StaticMemberReplaced) -> tuple[Group | None, Member | None]:
    group = context.groups.get(done.group_id)
    member = group.members.get(done.member_id) if group is not None else None
    return group, member if member is not None and member.awaiting_join is done.call else None


def _rename(context: Context, group: Group, member: Member, member_id: str, now: Moment) -> None:
    context.expect_nothing(group.group_id, member.member_id)
    group.rename(member, member_id)
    context.expect_heartbeat(group, member, now)


def _rebalance_timeout_ms(call: Call, request: JoinGroupRequest) -> int:
    return request.session_timeout_ms if call.version == 0 else request.rebalance_timeout_ms
