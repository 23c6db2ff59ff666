"""A group changes its protocol: while members live (`group.consumer.migration.policy`), or when nobody is in it.

- Upgrade: a member of the new protocol joins a classic group of consumers. All classic members stay, with what they
  have, in the generation that becomes the group's epoch; those who wait for a rebalance are told to join again.
- Downgrade: the last member of the new protocol goes. The classic ones stay in the generation of the group's epoch, and
  a rebalance begins.
- An empty group simply takes the protocol of whoever comes.

Either is one write, with which the group is the one, or still the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.assignors import Target
from appliance.consumer_groups.consumer_protocol import (
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from appliance.consumer_groups.context import AnyEffect, ConsumerContext, DowngradeDue
from appliance.consumer_groups.stored import (
    AnyRecord,
    ClassicMember,
    ConsumerGroup,
    Current,
    CurrentRecord,
    GroupEpochRecord,
    MemberInfo,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.coordinator.calls import Answer, Write
from appliance.coordinator.moment import Moment
from appliance.groups.barrier import prepare_rebalance
from appliance.groups.context import join_key, sync_key
from appliance.groups.group import Group
from appliance.groups.members import Member
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.groups.stored import GenerationRecord, StoredGeneration
from appliance.groups.subscription import CONSUMER_PROTOCOL_TYPE
from appliance.wire.schema import WireError


@dataclass(frozen=True, slots=True)
class Joinable:
    """A group that a member of the new protocol may join, and what has to be written for that."""

    group: ConsumerGroup
    records: tuple[AnyRecord, ...] = ()
    classic: Group | None = None
    """Its members come over."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """Follow-up of the write that makes a consumer group, out of a classic one or of nothing."""

    group_id: str


@dataclass(frozen=True, slots=True)
class Downgraded:
    """Follow-up of the write that makes a consumer group a classic one."""

    group_id: str


class NotJoinable(Exception):
    """The group stays a classic one."""


def group_to_join(context: ConsumerContext, group_id: str) -> Joinable:
    """The consumer group of this name, made from a classic one if there is that. Raises: NotJoinable."""
    group = context.find(group_id)
    classic = context.classic.groups.get(group_id)
    if group is not None and (classic is None or group.members):
        return Joinable(group)
    end: tuple[AnyRecord, ...] = () if group is None else tuple(group.tombstones())
    classic = context.classic.find(group_id)
    if classic is None:
        return Joinable(ConsumerGroup(group_id))
    if group_id in context.stored.generations:
        end = (*end, GenerationRecord(group_id, None))
    if classic.state is GroupState.EMPTY:
        # Ids that were given out are void.
        return Joinable(ConsumerGroup(group_id), end, context.classic.groups.get(group_id))
    if not context.config.may_upgrade or classic.protocol_type != CONSUMER_PROTOCOL_TYPE or not classic.members:
        raise NotJoinable
    if len(classic.members) > context.config.max_size:
        raise NotJoinable
    try:
        records = _upgraded(context, classic)
    except WireError:
        raise NotJoinable from None
    made = type(context.stored)()
    for record in records:
        made.replay(record)
    return Joinable(made.consumer_groups[group_id], (*end, *records), classic)


def _upgraded(context: ConsumerContext, classic: Group) -> list[AnyRecord]:
    """Raises: WireError, if a member's metadata cannot be read."""
    group_id, epoch = classic.group_id, classic.generation_id
    topics = context.world().topics
    members: dict[str, MemberInfo] = {}
    has: dict[str, Current] = {}
    for member in classic.members.values():
        name = classic.protocol_name if any(name == classic.protocol_name for name, _ in member.protocols) else None
        subscription = read_subscription(dict(member.protocols)[name or member.protocols[0][0]])
        assigned = read_assignment(member.assignment, topics)
        members[member.member_id] = MemberInfo(
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            "",
            member.rebalance_timeout_ms,
            None,
            member.instance_id,
            subscription.rack_id,
            ClassicMember(member.session_timeout_ms, tuple((name, bytes(data)) for name, data in member.protocols)),
        )
        owned = {topic: dict.fromkeys(sorted(partitions), epoch) for topic, partitions in assigned.items()}
        has[member.member_id] = Current(epoch, epoch, assigned=owned)
    names = {name for member in members.values() for name in member.topic_names}
    records: list[AnyRecord] = [MemberRecord(group_id, member_id, member) for member_id, member in members.items()]
    records.append(GroupEpochRecord(group_id, epoch, context.metadata_hash(names)))
    for member_id, current in has.items():
        target = {topic: tuple(partitions) for topic, partitions in current.assigned.items()}
        records.append(TargetRecord(group_id, member_id, target))
    records.append(TargetEpochRecord(group_id, epoch, 0))
    return [*records, *(CurrentRecord(group_id, member_id, current) for member_id, current in has.items())]


def take_over(context: ConsumerContext, found: Joinable, now: Moment) -> list[AnyEffect]:
    """The classic group does nothing any more; should the write fail, it comes back as the log has it."""
    classic = found.classic
    if classic is None:
        return []
    effects: list[AnyEffect] = []
    for member in classic.members.values():
        calls = (classic.take_join(member), classic.take_sync(member))
        effects += [refusal(call, ErrorCode.REBALANCE_IN_PROGRESS) for call in calls if call is not None]
    forget_classic(context, classic)
    for member_id, info in found.group.members.items():
        if info.classic is not None:
            context.expect_member(classic.group_id, member_id, now, info.classic.session_timeout_ms)
    return effects


def forget_classic(context: ConsumerContext, classic: Group) -> None:
    """No deadline of the classic group is kept."""
    deadlines = context.classic.deadlines
    for member_id in [*classic.members, *classic.pending_members]:
        context.classic.expect_nothing(classic.group_id, member_id)
    deadlines.cancel(join_key(classic))
    deadlines.cancel(sync_key(classic))
    context.classic.groups.pop(classic.group_id, None)


def upgrade_failed(context: ConsumerContext, group_id: str, now: Moment) -> None:
    """The group is what the log says: its classic members are heard again, as after a failover.

    Not to be called while the write may still come into the log, as it may after a time-out: requests wait until then.
    """
    context.upgrading.pop(group_id, None)
    generation = context.stored.generations.get(group_id)
    if generation is None or not generation.members or group_id in context.classic.groups:
        return
    group = context.classic.groups[group_id] = Group(group_id, generation)
    for member in group.members.values():
        context.expect_nothing(group_id, member.member_id)
        context.classic.expect_heartbeat(group, member, now)


# The other way


def may_downgrade(context: ConsumerContext, group: ConsumerGroup, gone: Collection[str]) -> bool:
    """Whether only classic members are left without these, and at least one of these was not."""
    if not context.config.may_downgrade or all(group.members[each].classic is not None for each in gone):
        return False
    left = [member for member_id, member in group.members.items() if member_id not in gone]
    if not left or any(member.classic is None for member in left):
        return False
    return len(left) <= context.classic.config.max_size


def downgrade(
    context: ConsumerContext,
    group: ConsumerGroup,
    members: Mapping[str, MemberInfo],
    targets: Mapping[str, Target],
    now: Moment,
    answers: tuple[Answer, ...],
    *,
    only_alone: bool = False,
) -> AnyEffect:
    """The write that makes the group a classic one of these members, with what they are to have."""
    classic = Group(group.group_id)
    classic.generation_id, classic.protocol_type = group.epoch, CONSUMER_PROTOCOL_TYPE
    world = context.world()
    for member_id, member in members.items():
        if member.classic is None:
            continue
        classic.add(
            Member(
                member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                CONSUMER_PROTOCOL_TYPE,
                member.classic.protocols,
            )
        )
    classic.protocol_name = classic.select_protocol()
    for each in classic.members.values():
        version = version_of(each.metadata_for(classic.protocol_name))
        each.assignment = write_assignment(targets.get(each.member_id, {}), world.topics_by_id, version)
    classic.state, classic.state_since_ms = GroupState.STABLE, now.wall_ms
    assignments = {each.member_id: each.assignment for each in classic.members.values()}
    end = GenerationRecord(group.group_id, classic.as_stored(assignments))
    context.downgrading[group.group_id] = classic
    return Write(
        group.group_id, (*group.tombstones(), end), answers, follow_up=Downgraded(group.group_id), only_alone=only_alone
    )


def generation_replayed(context: ConsumerContext, group_id: str, generation: StoredGeneration | None) -> None:
    """If this is what makes a consumer group a classic one, it is one from now on."""
    group = context.downgrading.pop(group_id, None)
    if group is None or generation is None or group_id in context.classic.groups:
        return
    if group.generation_id == generation.generation_id:
        context.classic.groups[group_id] = group
        context.classic.deadlines.set(("downgraded", group_id), 0, DowngradeDue(group_id))


def downgraded(context: ConsumerContext, group_id: str, now: Moment) -> list[AnyEffect]:
    """The members of a group that has just become a classic one have their sessions, and a rebalance begins."""
    context.classic.deadlines.cancel(("downgraded", group_id))
    group = context.classic.groups.get(group_id)
    if group is None or group.state is not GroupState.STABLE:
        return []
    for member in group.members.values():
        context.expect_nothing(group_id, member.member_id)
        context.classic.expect_heartbeat(group, member, now)
    return list(prepare_rebalance(context.classic, group, now))
