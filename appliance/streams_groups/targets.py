"""When a group gets another target, and what of it has to be written.

A target belongs to a group epoch: whenever members, topics or standby replicas change, the epoch rises, and a new
target follows, at most one in `streams.assignment.interval.ms`, and none before `streams.initial.rebalance.delay.ms` is
over.
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.coordinator.calls import Write
from appliance.coordinator.moment import Moment
from appliance.streams_groups.assignor import assign
from appliance.streams_groups.context import RETRY_MS, EveryEffect, StreamsContext
from appliance.streams_groups.stored import (
    Assignment,
    EveryRecord,
    MemberInfo,
    StreamsGroup,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.streams_groups.topology import Configured, InvalidTopology


def new_target(
    context: StreamsContext, group: StreamsGroup, configured: Configured, members: Mapping[str, MemberInfo]
) -> dict[str, Assignment]:
    """What each of these members is to have. Empty for all while topics are missing."""
    processes = {member_id: member.process_id for member_id, member in members.items()}
    replicas = context.config.standby_replicas_of(context.entries(group.group_id))
    return assign(configured, processes, group.targets, replicas)


def target_records(group: StreamsGroup, epoch: int, made: Mapping[str, Assignment], now: Moment) -> list[EveryRecord]:
    """What differs from the target that was there, and the new epoch."""
    records: list[EveryRecord] = [
        TargetRecord(group.group_id, member_id, target)
        for member_id, target in made.items()
        if group.targets.get(member_id) != target
    ]
    return [*records, TargetEpochRecord(group.group_id, epoch, now.wall_ms)]


def wait_ms(context: StreamsContext, group: StreamsGroup, now: Moment) -> int:
    """How long the next target has to wait."""
    passed_ms = now.wall_ms - group.assignment_timestamp_ms
    if passed_ms < 0:
        # The host's clock was set back, or the last coordinator's ran ahead.
        return 0
    return max(0, context.config.assignment_interval_of(context.entries(group.group_id)) - passed_ms)


def assign_due(context: StreamsContext, group_id: str, now: Moment) -> list[EveryEffect]:
    """The time for another target has come; nobody needs to ask for it."""
    group = context.find(group_id)
    memory = context.memory(group_id)
    memory.waits_for_members = False
    if group is None or group.is_empty or group.topology is None or group.epoch <= group.assignment_epoch:
        return []
    delay_ms = wait_ms(context, group, now)
    if delay_ms:
        context.assign_in(group_id, now, delay_ms)
        return []
    try:
        configured = context.configured(group_id, group.topology)
    except InvalidTopology:
        # The next heartbeat says so.
        return []
    context.assign_in(group_id, now, RETRY_MS)
    made = new_target(context, group, configured, group.members)
    return [Write(group_id, tuple(target_records(group, group.epoch, made, now)), only_alone=True)]
