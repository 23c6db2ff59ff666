"""Members who leave, are silent for too long, or do not give up in time what others are to get.

- Who leaves is removed with one write, and the group's epoch rises; the next target is made when somebody asks.
- Epoch -2: a static member keeps its place until its session is over; what it had to give up is free (KIP-345).
- When the last member of the new protocol goes and classic ones stay, the group becomes a classic one (`migration`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.context import (
    AnyEffect,
    ConsumerContext,
    MemberSessionOver,
    RejoinOver,
    RevocationOver,
    told,
)
from appliance.consumer_groups.heartbeat import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from appliance.consumer_groups.migration import downgrade, may_downgrade
from appliance.consumer_groups.regexes import forgotten_regexes
from appliance.consumer_groups.stored import (
    AnyRecord,
    ConsumerGroup,
    CurrentRecord,
    GroupEpochRecord,
    MemberState,
)
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS
from appliance.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

REMOVED_AT_ONCE_MAX = 1_000
"""Members whose session is over that one write removes: it has to fit into a batch."""


def leave(context: ConsumerContext, call: Call, request: ConsumerGroupHeartbeatRequest, now: Moment) -> list[AnyEffect]:
    """Decide a heartbeat that leaves."""
    group = context.find(request.group_id)
    if group is None:
        return [told(call, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is no consumer group.")]
    member_id = request.member_id
    if request.instance_id is not None:
        owner = group.static_members.get(request.instance_id)
        if owner is None:
            return [told(call, ErrorCode.UNKNOWN_MEMBER_ID, f"Instance {request.instance_id} is not in the group.")]
        if owner != member_id:
            return [told(call, ErrorCode.FENCED_INSTANCE_ID, f"Instance {request.instance_id} is another member now.")]
    elif member_id not in group.members:
        return [told(call, ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")]
    answer = Answer(call, ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch))
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is not None:
        return _leave_for_a_while(context, group, member_id, answer, now)
    answer.response.member_epoch = LEAVE_EPOCH  # type: ignore[attr-defined]
    return [removal(context, group, [member_id], now, answer)]


def _leave_for_a_while(
    context: ConsumerContext, group: ConsumerGroup, member_id: str, answer: Answer, now: Moment
) -> list[AnyEffect]:
    current = replace(
        group.current_of(member_id), epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, pending_revocation={}
    )
    context.expect_no_revocation(group.group_id, member_id)
    return [Write(group.group_id, (CurrentRecord(group.group_id, member_id, current),), (answer,))]


def removal(
    context: ConsumerContext,
    group: ConsumerGroup,
    member_ids: Iterable[str],
    now: Moment,
    *answers: Answer,
    only_alone: bool = False,
) -> AnyEffect:
    """The write that removes members; of the last one of the new protocol, the one that makes the group classic."""
    gone = dict.fromkeys(member_id for member_id in member_ids if member_id in group.members)
    left = {member_id: member for member_id, member in group.members.items() if member_id not in gone}
    if may_downgrade(context, group, gone):
        return downgrade(context, group, left, group.targets, now, answers, only_alone=only_alone)
    records: list[AnyRecord] = []
    for member_id in gone:
        records += group.removed(member_id)
    records += forgotten_regexes(group, left)
    names = {name for member in left.values() for name in group.topics_of(member)}
    records.append(GroupEpochRecord(group.group_id, group.epoch + 1, context.metadata_hash(names)))
    return Write(group.group_id, tuple(records), answers, only_alone=only_alone)


def session_over(context: ConsumerContext, event: MemberSessionOver, now: Moment) -> list[AnyEffect]:
    """A member has been silent for too long."""
    group = context.find(event.group_id)
    if group is None or event.member_id not in group.members:
        return []
    # Who goes with a machine or a network goes together: one write removes all who are late.
    others = (each for each in group.members if each != event.member_id and context.is_late(group.group_id, each, now))
    gone = [event.member_id, *islice(others, REMOVED_AT_ONCE_MAX - 1)]
    for member_id in gone:
        # Should something else about the group be on its way just now, we come again.
        context.expect_member(event.group_id, member_id, now, RETRY_MS)
    return [removal(context, group, gone, now, only_alone=True)]


def revocation_over(context: ConsumerContext, event: RevocationOver, now: Moment) -> list[AnyEffect]:
    """A member has not given up its partitions in time: others must not wait any longer."""
    group = context.find(event.group_id)
    current = group.current.get(event.member_id) if group is not None else None
    if group is None or current is None or current.epoch != event.epoch:
        return []
    if current.state is not MemberState.UNREVOKED_PARTITIONS:
        return []
    context.expect_revocation(event.group_id, event.member_id, event.epoch, now, RETRY_MS)
    return [removal(context, group, [event.member_id], now, only_alone=True)]


def rejoin_over(context: ConsumerContext, event: RejoinOver, now: Moment) -> list[AnyEffect]:
    """A classic member was told to join again, or had joined and was to ask for its assignment, and has not come."""
    group = context.find(event.group_id)
    current = group.current.get(event.member_id) if group is not None else None
    if group is None or current is None or current.epoch != event.epoch:
        return []
    context.expect_rejoin(event.group_id, event.member_id, event.epoch, now, RETRY_MS)
    return [removal(context, group, [event.member_id], now, only_alone=True)]
