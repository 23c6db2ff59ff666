"""The join barrier: a rebalance begins, members are awaited, the next generation stands.

- A group that was empty waits `group.initial.rebalance.delay.ms`, and again while new members keep coming, so that ten
  consumers that start together need one rebalance and not ten (KIP-134).
- Any other waits until all members have joined again, at most as long as the most patient of them allows. Dynamic
  members that did not come are removed; static ones keep their place until their session is over (KIP-345).
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, GroupEffect, InitialDelayOver, JoinOver, SyncOver, join_key, sync_key
from appliance.groups.group import Group
from appliance.groups.members import Member
from appliance.groups.refusals import PROTOCOL_MAY_BE_NULL_SINCE, refusal
from appliance.groups.states import GroupState
from appliance.groups.stored import GenerationRecord
from appliance.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember

NOBODY_CAME_WAIT_MIN_MS = 1_000
"""A rebalance that nobody came to is not looked at more often, however short its members' rebalance timeout is."""


class GroupEmptied:
    """Follow-up of the record that says that nobody is left."""


def rebalance_or_complete(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """Somebody came, left or changed: begin a rebalance, or see whether the present one is complete."""
    return (
        prepare_rebalance(context, group, now) if group.can_rebalance else complete_if_all_joined(context, group, now)
    )


def prepare_rebalance(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """Ask all members to join again."""
    effects: list[GroupEffect] = []
    if group.state is GroupState.COMPLETING_REBALANCE:
        effects += fail_sync(context, group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.pending_sync.clear()
    context.deadlines.cancel(sync_key(group))
    is_first = group.state is GroupState.EMPTY
    group.enter(GroupState.PREPARING_REBALANCE, now.wall_ms)
    if is_first:
        delay_ms = context.config.initial_rebalance_delay_ms
        _wait_for_more(context, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0), now)
    elif group.all_joined:
        effects += complete_join(context, group, now)
    else:
        _wait_for_members(context, group, now)
    return effects


def complete_if_all_joined(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """End the join phase if nobody is missing; but a first rebalance waits until its delay is over."""
    is_first = group.previous_state is GroupState.EMPTY
    if group.state is not GroupState.PREPARING_REBALANCE or is_first or not group.all_joined:
        return []
    return complete_join(context, group, now)


def initial_delay_over(context: Context, event: InitialDelayOver, now: Moment) -> list[GroupEffect]:
    """Wait again if somebody new came in the meantime and the time allows it."""
    group = context.groups.get(event.group_id)
    if group is None or group.state is not GroupState.PREPARING_REBALANCE:
        return []
    if not group.new_member_added or event.remaining_ms == 0:
        return complete_join(context, group, now)
    group.new_member_added = False
    delay_ms = min(context.config.initial_rebalance_delay_ms, event.remaining_ms)
    _wait_for_more(context, group, delay_ms, max(event.remaining_ms - event.delay_ms, 0), now)
    return []


def join_over(context: Context, event: JoinOver, now: Moment) -> list[GroupEffect]:
    """Go on without those who did not come."""
    group = context.groups.get(event.group_id)
    if group is None or group.state is not GroupState.PREPARING_REBALANCE:
        return []
    return complete_join(context, group, now)


def complete_join(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """End the join phase: those who joined are the members of the next generation."""
    context.deadlines.cancel(join_key(group))
    effects: list[GroupEffect] = []
    for member in list(group.members.values()):
        if member.awaiting_join is None and not member.is_static:
            effects += remove_member(context, group, member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none of them has come: their sessions decide.
        _wait_for_members(context, group, now, NOBODY_CAME_WAIT_MIN_MS)
        return effects
    group.next_generation(now.wall_ms)
    group.new_member_added = False
    if group.state is GroupState.EMPTY:
        record = GenerationRecord(group.group_id, group.as_stored({}))
        return [*effects, Write(group.group_id, (record,), follow_up=GroupEmptied())]
    for member in group.members.values():
        call = group.take_join(member)
        if call is not None:
            effects.append(Answer(call, joined(group, member, call.version)))
        context.expect_heartbeat(group, member, now)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    _wait_for_syncs(context, group, now)
    return effects


def joined(group: Group, member: Member, version: int, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """The member is in this generation; its leader also learns who else is."""
    members: list[JoinGroupResponseMember] = []
    if member.member_id == group.leader_id:
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata_for(group.protocol_name),
            )
            for each in group.members.values()
        ]
    protocol_name = group.protocol_name
    if protocol_name is None and version < PROTOCOL_MAY_BE_NULL_SINCE:
        protocol_name = ""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def remove_member(context: Context, group: Group, member_id: str) -> list[GroupEffect]:
    """A member is gone; what it waited for is answered, so that a client that still lives joins anew."""
    calls = group.remove(member_id)
    context.expect_nothing(group.group_id, member_id)
    return [refusal(call, ErrorCode.UNKNOWN_MEMBER_ID) for call in calls]


def after_removal(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """What follows when members were removed."""
    if group.state is GroupState.EMPTY:
        context.forget_if_stored(group)
        return []
    return rebalance_or_complete(context, group, now)


def after_pending_removal(context: Context, group: Group, now: Moment) -> list[GroupEffect]:
    """What follows when an id that was given out does not come back: a rebalance may have waited for nobody else."""
    context.forget_if_stored(group)
    return complete_if_all_joined(context, group, now)


def fail_sync(context: Context, group: Group, error: ErrorCode, now: Moment) -> list[GroupEffect]:
    """All members that wait for their assignments get the error."""
    effects: list[GroupEffect] = []
    for member in group.members.values():
        member.assignment = b""
        call = group.take_sync(member)
        if call is not None:
            effects.append(refusal(call, error))
            context.expect_heartbeat(group, member, now)
    return effects


def time_anew(context: Context, now: Moment) -> None:
    """Whoever is expected to say something has the full time for it, from now."""
    for group in context.groups.values():
        for member in group.members.values():
            timeout_ms = context.config.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
            context.expect_heartbeat(group, member, now, timeout_ms)
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is not GroupState.EMPTY:
            _wait_for_members(context, group, now)
        if group.pending_sync:
            _wait_for_syncs(context, group, now)


def _wait_for_members(context: Context, group: Group, now: Moment, at_least_ms: int = 0) -> None:
    due_ms = now.monotonic_ms + max(group.rebalance_timeout_ms, at_least_ms)
    context.deadlines.set(join_key(group), due_ms, JoinOver(group.group_id))


def _wait_for_syncs(context: Context, group: Group, now: Moment) -> None:
    due_ms = now.monotonic_ms + group.rebalance_timeout_ms
    context.deadlines.set(sync_key(group), due_ms, SyncOver(group.group_id, group.generation_id))


def _wait_for_more(context: Context, group: Group, delay_ms: int, remaining_ms: int, now: Moment) -> None:
    event = InitialDelayOver(group.group_id, delay_ms, remaining_ms)
    context.deadlines.set(join_key(group), now.monotonic_ms + delay_ms, event)
