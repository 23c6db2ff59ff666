"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic consumers in a consumer group (KIP-848, online migration).

To them it looks like a classic group in which somebody else is the leader: their generation is their member epoch, a
rebalance is what makes them come and take the next step towards their target, and they never assign.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.consumer_protocol import (
    by_topic_id,
    read_subscription,
    version_of,
    write_assignment,
)
from appliance.consumer_groups.context import AnyEffect, ConsumerContext
from appliance.consumer_groups.heartbeat import Step, advance, reconcile, take_place
from appliance.consumer_groups.leaving import removal
from appliance.consumer_groups.migration import downgrade
from appliance.consumer_groups.regexes import forgotten_regexes
from appliance.consumer_groups.stored import (
    ClassicMember,
    ConsumerGroup,
    Current,
    MemberInfo,
    MemberRecord,
    MemberState,
)
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.joining import MEMBER_ID_REQUIRED_SINCE
from appliance.groups.members import Protocols, protocols_of
from appliance.groups.presence import LEAVE_MANY_SINCE
from appliance.groups.refusals import refusal, refused_join
from appliance.groups.subscription import CONSUMER_PROTOCOL_TYPE
from appliance.groups.syncing import PROTOCOL_REQUIRED_SINCE
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from appliance.wire.schema import WireError


def join(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: JoinGroupRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a JoinGroup."""
    config = context.classic.config
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return [refusal(call, ErrorCode.INVALID_SESSION_TIMEOUT)]
    instance_id, member_id = request.group_instance_id, request.member_id
    owner = group.static_members.get(instance_id or "") if instance_id is not None else None
    if member_id not in group.members and owner is None and len(group.members) >= context.config.max_size:
        return [Answer(call, refused_join(call.version, "", ErrorCode.GROUP_MAX_SIZE_REACHED))]
    protocols = protocols_of(request.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not _supports(group, member_id, protocols):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    try:
        subscription = read_subscription(protocols[0][1])
    except WireError:
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if instance_id is not None and member_id:
        error = _identify(group, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return [Answer(call, refused_join(call.version, member_id, error))]
    if not member_id:
        member_id = context.new_member_id()
        if instance_id is None and call.version >= MEMBER_ID_REQUIRED_SINCE:
            return [Answer(call, refused_join(call.version, member_id, ErrorCode.MEMBER_ID_REQUIRED))]
    if owner is not None and owner != member_id:
        step = take_place(context, group, owner, member_id, [])
    else:
        step = Step(group, member_id, group.members.get(member_id, MemberInfo()), group.current_of(member_id), [])
    before = step.member
    step.member = MemberInfo(
        call.client_id,
        call.client_host,
        tuple(sorted(set(subscription.topics))),
        "",
        request.session_timeout_ms if call.version == 0 else request.rebalance_timeout_ms,
        None,
        instance_id,
        subscription.rack_id,
        ClassicMember(request.session_timeout_ms, tuple((name, bytes(data)) for name, data in protocols)),
    )
    is_new = member_id not in group.members
    if step.member != before or is_new:
        step.records.append(MemberRecord(group.group_id, member_id, step.member))
    if before.topic_regex:
        step.records += forgotten_regexes(group, step.members)
    must_rise = set(group.topics_of(before)) != set(step.member.topic_names)
    if step.replaced_id is not None and before.classic is None and context.config.may_downgrade:
        members = step.members
        if all(each.classic is not None for each in members.values()) and len(members) <= config.max_size:
            return [_last_one_replaced(context, step, call, protocols, now)]
    advance(context, step, now, must_rise=must_rise)
    owned = by_topic_id(subscription.owned_partitions, context.world().topics)
    reconcile(context, step, now, owned)
    context.expect_member(group.group_id, member_id, now, request.session_timeout_ms)
    context.expect_rejoin(group.group_id, member_id, step.current.epoch, now, step.member.rebalance_timeout_ms)
    answer = Answer(call, _joined(member_id, step.current.epoch, protocols))
    return [Write(group.group_id, tuple(step.records), (answer,))] if step.records else [answer]


def _joined(member_id: str, epoch: int, protocols: Protocols) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        member_id=member_id,
    )


def _last_one_replaced(
    context: ConsumerContext, step: Step, call: Call, protocols: Protocols, now: Moment
) -> AnyEffect:
    """The last member of the new protocol, a static one, is back with the classic one: all join anew."""
    targets = {**step.group.targets, step.member_id: step.target or {}}
    answer = Answer(call, _joined(step.member_id, step.group.epoch, protocols))
    return downgrade(context, step.group, step.members, targets, now, (answer,))


def sync(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: SyncGroupRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a SyncGroup."""
    if call.version >= PROTOCOL_REQUIRED_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    found = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(found, ErrorCode):
        return [refusal(call, found)]
    member, classic, current = found
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if request.protocol_name not in (None, classic.protocols[0][0]):
        return [refusal(call, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)]
    if group.epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_rejoin(context, group, request.member_id, member, current, now)
        return [refusal(call, ErrorCode.REBALANCE_IN_PROGRESS)]
    context.expect_no_rejoin(group.group_id, request.member_id)
    context.expect_member(group.group_id, request.member_id, now, classic.session_timeout_ms)
    version = version_of(classic.protocols[0][1])
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(current.assigned, context.world().topics_by_id, version),
    )
    return [Answer(call, response)]


def heartbeat(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: HeartbeatRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a Heartbeat: whoever has something to do is told to join again."""
    found = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if isinstance(found, ErrorCode):
        return [refusal(call, found)]
    member, classic, current = found
    context.expect_member(group.group_id, request.member_id, now, classic.session_timeout_ms)
    error = ErrorCode.NONE
    if (
        current.epoch < group.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, request.member_id, current))
    ):
        error = ErrorCode.REBALANCE_IN_PROGRESS
        _await_rejoin(context, group, request.member_id, member, current, now)
    return [Answer(call, HeartbeatResponse(error_code=error))]


def leave(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: LeaveGroupRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a LeaveGroup, which may name members of either protocol: administrators remove them so."""
    leaving = request.members
    if call.version < LEAVE_MANY_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]
    gone: list[str] = []
    responses: list[MemberResponse] = []
    for identity in leaving:
        member_id, error = identity.member_id, ErrorCode.NONE
        if member_id == "":
            member_id = group.static_members.get(identity.group_instance_id or "", "")
            error = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
        else:
            error = _identify(group, member_id, identity.group_instance_id)
        if error is ErrorCode.NONE and member_id in gone:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is ErrorCode.NONE:
            gone.append(member_id)
        responses.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    response = LeaveGroupResponse(members=responses)
    if call.version < LEAVE_MANY_SINCE:
        response = LeaveGroupResponse(error_code=responses[0].error_code)
    answer = Answer(call, response)
    return [removal(context, group, gone, now, answer)] if gone else [answer]


def _identify(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if owner != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[MemberInfo, ClassicMember, Current] | ErrorCode:
    error = _identify(group, member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    member, current = group.members[member_id], group.current_of(member_id)
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if generation_id != current.epoch:
        return ErrorCode.ILLEGAL_GENERATION
    return member, member.classic, current


def _supports(group: ConsumerGroup, member_id: str, protocols: Protocols) -> bool:
    """Whether all classic members have one of these in common, as they would need if they were alone."""
    others = [
        {name for name, _ in member.classic.protocols}
        for other_id, member in group.members.items()
        if member.classic is not None and other_id != member_id
    ]
    return any(all(name in names for names in others) for name, _ in protocols)


def _waits(group: ConsumerGroup, member_id: str, current: Current) -> bool:
    """Whether anything that the member is to get is still with somebody else."""
    return any(
        partition not in current.assigned.get(topic, {}) and group.owner(topic, partition) is not None
        for topic, partitions in group.targets.get(member_id, {}).items()
        for partition in partitions
    )


def _await_rejoin(
    context: ConsumerContext, group: ConsumerGroup, member_id: str, member: MemberInfo, current: Current, now: Moment
) -> None:
    if not context.awaits_rejoin(group.group_id, member_id):
        context.expect_rejoin(group.group_id, member_id, current.epoch, now, member.rebalance_timeout_ms)
