"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848).

- Epoch 0 joins: a member that is new, or comes back; it says all that it wants and owns nothing. -1 leaves. -2 leaves
  for a while: a static member keeps its place and its partitions (KIP-345).
- Any other epoch has to be the member's own, or its previous one if it has no partition that it was not given: the
  answer with the new one may have been lost. Whoever is behind is fenced and joins anew.
- One heartbeat does everything there is to do: the member is written down, the group's epoch rises if anything changed,
  a new target follows if its time has come, and the member goes a step towards it. All of that is one write.
- The assignment is in the answer if it has changed, or if the member said everything, as it does when in doubt.
v1 the client makes its member id (KIP-1082); subscription by a regular expression
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.assignors import ASSIGNORS, Target
from appliance.consumer_groups.context import AnyEffect, ConsumerContext, told
from appliance.consumer_groups.migration import Joinable, NotJoinable, Upgraded, group_to_join, take_over
from appliance.consumer_groups.reconciling import Reported, is_part_of, next_step
from appliance.consumer_groups.regexes import ask_for_regexes, forgotten_regexes
from appliance.consumer_groups.stored import (
    AnyRecord,
    ConsumerGroup,
    Current,
    CurrentRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    MemberState,
    Owned,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.consumer_groups.targets import (
    assignment_of,
    is_small,
    send_to_helper,
)
from appliance.consumer_groups.topic_regex import BadRegex, check_regex
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2
OWN_MEMBER_ID_SINCE = 1


@dataclass(frozen=True, slots=True)
class Refused(Exception):
    """The request cannot be granted."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class Step:
    """One member's request on its way through: what is ahead of the log until it is written."""

    group: ConsumerGroup
    member_id: str
    member: MemberInfo
    current: Current
    records: list[AnyRecord]
    replaced_id: str | None = None
    """The static member whose place it takes."""
    target: Target | None = None
    epoch: int = 0
    assignment_epoch: int = 0

    @property
    def members(self) -> dict[str, MemberInfo]:
        """All members, with what this request changes."""
        members = dict(self.group.members)
        if self.replaced_id is not None:
            members.pop(self.replaced_id, None)
        members[self.member_id] = self.member
        return members


def heartbeat(
    context: ConsumerContext, call: Call, request: ConsumerGroupHeartbeatRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a heartbeat that joins or stays."""
    try:
        return _heartbeat(context, call, request, now)
    except Refused as refused:
        return [told(call, refused.error, refused.message)]


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> tuple[ErrorCode, str]:
    """What is wrong with the request by itself."""
    invalid = ErrorCode.INVALID_REQUEST
    if not request.group_id.strip():
        return invalid, "GroupId can't be empty."
    if not request.member_id and (version >= OWN_MEMBER_ID_SINCE or request.member_epoch != JOIN_EPOCH):
        return invalid, "MemberId can't be empty."
    for name in ("instance_id", "rack_id"):
        if getattr(request, name) == "":
            return invalid, f"{name} can't be empty."
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        return invalid, f"MemberEpoch is {request.member_epoch}, less than {LEAVE_STATIC_EPOCH}."
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return invalid, "Only a member with an InstanceId can leave for a while."
    if request.member_epoch < JOIN_EPOCH:
        return ErrorCode.NONE, ""
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return invalid, "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return invalid, "TopicPartitions must be empty when (re-)joining."
        if not request.subscribed_topic_names and not request.subscribed_topic_regex:
            wants = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
            if not wants:
                return invalid, "SubscribedTopicNames or SubscribedTopicRegex must be set in first request."
    if request.server_assignor is not None and request.server_assignor not in assignors:
        return ErrorCode.UNSUPPORTED_ASSIGNOR, f"Supported assignors: {', '.join(assignors)}."
    if request.subscribed_topic_regex:
        try:
            check_regex(request.subscribed_topic_regex)
        except BadRegex as error:
            return ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)
    return ErrorCode.NONE, ""


def _heartbeat(
    context: ConsumerContext, call: Call, request: ConsumerGroupHeartbeatRequest, now: Moment
) -> list[AnyEffect]:
    joins = request.member_epoch == JOIN_EPOCH
    member_id = request.member_id or context.new_member_id()
    found = _found(context, request.group_id, joins=joins)
    group = found.group
    step = _member(context, group, member_id, request, list(found.records))
    before, before_current = step.member, step.current
    step.member = _said(before, call, request)
    changed = (step.member is not before and step.member != before) or member_id not in group.members
    reads_other_topics = _reads_other_topics(group, before, step.member)
    if changed:
        step.records.append(MemberRecord(group.group_id, member_id, step.member))
    if before.topic_regex != step.member.topic_regex:
        step.records += forgotten_regexes(group, step.members)
    ask_for_regexes(context, group, step.member, now, call.may_describe)
    advance(context, step, now, must_rise=reads_other_topics)
    reported = _reported(request)
    reconcile(context, step, now, reported)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    effects = take_over(context, found, now)
    context.expect_member(group.group_id, member_id, now)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=step.current.epoch,
        heartbeat_interval_ms=context.config.heartbeat_interval_of(context.entries(group.group_id)),
    )
    if joins or is_full or not _same_partitions(before_current.assigned, step.current.assigned):
        response.assignment = _shown(step.current.assigned)
    answer = Answer(call, response)
    if not step.records:
        return [*effects, answer]
    follow_up = None
    if group is not context.find(group.group_id):
        follow_up = Upgraded(group.group_id)
        context.upgrading[group.group_id] = None
    return [*effects, Write(group.group_id, tuple(step.records), (answer,), follow_up=follow_up)]


def _found(context: ConsumerContext, group_id: str, *, joins: bool) -> Joinable:
    """Raises: Refused."""
    group = context.find(group_id)
    if joins:
        try:
            return group_to_join(context, group_id)
        except NotJoinable:
            group = None
    if group is None:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is no consumer group.")
    return Joinable(group)


def _member(
    context: ConsumerContext,
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerGroupHeartbeatRequest,
    records: list[AnyRecord],
) -> Step:
    """Who asks, as it was until now. Raises: Refused."""
    joins = request.member_epoch == JOIN_EPOCH
    reported = _reported(request)
    instance_id = request.instance_id
    known = group.members.get(member_id)
    if instance_id is not None:
        owner = group.static_members.get(instance_id)
        if owner is not None and joins:
            # Of classic members nobody knows whether they are still there.
            if group.members[owner].classic is None and group.current_of(owner).epoch != LEAVE_STATIC_EPOCH:
                raise Refused(
                    ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance {instance_id} is still used by member {owner}."
                )
            return take_place(context, group, owner, member_id, records)
        if owner is None and not joins:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance {instance_id} is not in the group.")
        if owner is not None and owner != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID, f"Instance {instance_id} is another member now.")
    if known is None:
        if not joins:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in the group.")
        if len(group.members) >= context.config.max_size:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group has reached its maximum size.")
        return Step(group, member_id, MemberInfo(), Current(), records)
    current = group.current_of(member_id)
    _check_epoch(request.member_epoch, current, reported)
    return Step(group, member_id, known, current, records)


def _check_epoch(epoch: int, current: Current, reported: Reported) -> None:
    if epoch > current.epoch:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch {epoch} is above {current.epoch}, which it was given."
        )
    is_lost_answer = epoch == current.previous_epoch and is_part_of(reported, current.assigned)
    if epoch < current.epoch and not is_lost_answer and epoch != JOIN_EPOCH:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch {epoch} is below {current.epoch}.")
    if current.state is MemberState.UNKNOWN and epoch != JOIN_EPOCH:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "The member's state is not known here.")


def take_place(
    context: ConsumerContext, group: ConsumerGroup, old_id: str, member_id: str, records: list[AnyRecord]
) -> Step:
    """A static member is back, perhaps with another member id: it has what it had."""
    member = group.members[old_id]
    current = replace(group.current_of(old_id), epoch=0, previous_epoch=0)
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        # It has just begun, so it has given up everything.
        current = replace(current, pending_revocation={})
    if old_id == member_id:
        return Step(group, member_id, member, current, records)
    context.expect_nothing(group.group_id, old_id)
    target = group.targets.get(old_id, {})
    records += [
        CurrentRecord(group.group_id, old_id, None),
        TargetRecord(group.group_id, old_id, None),
        MemberRecord(group.group_id, old_id, None),
        MemberRecord(group.group_id, member_id, member),
        TargetRecord(group.group_id, member_id, target),
    ]
    return Step(group, member_id, member, current, records, old_id, target)


def _said(member: MemberInfo, call: Call, request: ConsumerGroupHeartbeatRequest) -> MemberInfo:
    """The member with all that it says; what it does not say has not changed."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    rest = (request.server_assignor, request.instance_id, request.rack_id)
    says_nothing = names is None and regex is None and rest == (None, None, None) and request.rebalance_timeout_ms == -1
    if says_nothing and (member.client_id, member.client_host, member.classic) == (
        call.client_id,
        call.client_host,
        None,
    ):
        return member
    return MemberInfo(
        call.client_id,
        call.client_host,
        member.topic_names if names is None else tuple(sorted(set(names))),
        member.topic_regex if regex is None else regex,
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        member.server_assignor if request.server_assignor is None else request.server_assignor,
        member.instance_id if request.instance_id is None else request.instance_id,
        member.rack_id if request.rack_id is None else request.rack_id,
    )


def _reads_other_topics(group: ConsumerGroup, before: MemberInfo, after: MemberInfo) -> bool:
    if before.topic_names != after.topic_names:
        return True
    return before.topic_regex != after.topic_regex and set(group.topics_of(before)) != set(group.topics_of(after))


def advance(context: ConsumerContext, step: Step, now: Moment, *, must_rise: bool) -> None:
    """Let the group's epoch rise if anything changed, and make the target of the new one if its time has come."""
    group, memory = step.group, context.memory(step.group.group_id)
    topics = context.world().topics
    step.epoch, step.assignment_epoch = group.epoch, group.assignment_epoch
    is_new = group.epoch == 0
    if is_new:
        # Epoch 0 says that a member joins, so nothing may have it: a group begins with nothing assigned in epoch 1.
        step.epoch = step.assignment_epoch = 1
        step.records.append(TargetEpochRecord(group.group_id, 1))
    if must_rise or is_new or memory.seen_topics is not topics:
        members = step.members
        names = {name for member in members.values() for name in group.topics_of(member)}
        metadata_hash = context.metadata_hash(names)
        if must_rise or is_new or metadata_hash != group.metadata_hash:
            step.epoch += must_rise or not is_new
            step.records.append(GroupEpochRecord(group.group_id, step.epoch, metadata_hash))
        else:
            memory.seen_topics = topics
    if step.epoch <= step.assignment_epoch:
        return
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group.group_id, now, delay_ms)
        return
    before = dict(group.targets)
    if step.replaced_id is not None:
        before[step.member_id] = before.pop(step.replaced_id, {})
    job = assignment_of(context, group, step.epoch, step.members, before)
    if not is_small(job):
        if step.epoch == group.epoch:
            send_to_helper(context, job)
        else:
            # First the epoch has to be in the log.
            context.assign_in(group.group_id, now, 0)
        return
    made = job.run()
    step.records += group.target_records(step.epoch, made, now.wall_ms, before)
    step.target, step.assignment_epoch = made[step.member_id], step.epoch


def reconcile(context: ConsumerContext, step: Step, now: Moment, reported: Reported) -> None:
    """The member's next step towards its target."""
    group = step.group
    target = step.target if step.target is not None else group.targets.get(step.member_id, {})
    subscribed: frozenset[uuid.UUID] | None = None
    if step.epoch > step.assignment_epoch:
        subscribed = _topic_ids(context, group, step.member)
    is_new = step.member_id not in group.current
    before = step.current
    step.current = next_step(
        before,
        step.assignment_epoch,
        target,
        lambda topic, partition: group.owner(topic, partition) not in (None, step.replaced_id or ""),
        reported,
        subscribed,
    )
    if step.current is not before or is_new or group.current.get(step.member_id) != step.current:
        step.records.append(CurrentRecord(group.group_id, step.member_id, step.current))
    if step.member.classic is None:
        if step.current.state is not MemberState.UNREVOKED_PARTITIONS:
            context.expect_no_revocation(group.group_id, step.member_id)
        elif step.current is not before:
            context.expect_revocation(
                group.group_id, step.member_id, step.current.epoch, now, step.member.rebalance_timeout_ms
            )


def _topic_ids(context: ConsumerContext, group: ConsumerGroup, member: MemberInfo) -> frozenset[uuid.UUID]:
    topics = context.world().topics
    return frozenset(topics[name].topic_id for name in group.topics_of(member) if name in topics)


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported:
    if request.topic_partitions is None:
        return None
    reported: dict[uuid.UUID, list[int]] = {}
    for row in request.topic_partitions:
        reported.setdefault(row.topic_id, []).extend(row.partitions)
    return reported


def _same_partitions(one: Owned, other: Owned) -> bool:
    return one is other or (
        one.keys() == other.keys() and all(one[topic].keys() == other[topic].keys() for topic in one)
    )


def _shown(assigned: Mapping[uuid.UUID, Mapping[int, int]]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitionsResponse(topic_id=topic, partitions=sorted(assigned[topic])) for topic in sorted(assigned)
        ]
    )


def supported(assignors: tuple[str, ...]) -> tuple[str, ...]:
    """The assignors of the configuration that there are."""
    return tuple(name for name in assignors if name in ASSIGNORS)
