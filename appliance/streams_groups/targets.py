"""When a group gets another target, and what of it has to be written.

A target belongs to a group epoch: whenever members, topics or standby replicas change, the epoch rises, and a new
target follows, at most one in `streams.assignment.interval.ms`, and none before `streams.initial.rebalance.delay.ms` is
over.
"""

from __future__ import annotations

from collections.abc import Mapping

from appliance.coordinator.calls import Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS
from appliance.streams_groups.context import AssignmentJob, EveryEffect, StreamsContext
from appliance.streams_groups.stored import (
    Assignment,
    MemberInfo,
    StreamsGroup,
)
from appliance.streams_groups.topology import Configured, InvalidTopology


def job_of(
    context: StreamsContext, group: StreamsGroup, epoch: int, configured: Configured, members: Mapping[str, MemberInfo]
) -> AssignmentJob:
    """What an assignor has to know. `members` may be ahead of the log."""
    processes = {member_id: member.process_id for member_id, member in members.items()}
    replicas = context.config.standby_replicas_of(context.entries(group.group_id))
    return AssignmentJob(group.group_id, epoch, configured, processes, dict(group.targets), replicas)


def send_to_helper(context: StreamsContext, job: AssignmentJob) -> None:
    """Have a target made, unless that is under way."""
    memory = context.memory(job.group_id)
    if memory.job is None or memory.job.epoch != job.epoch:
        memory.job, memory.made = job, None
        context.jobs.append(job)


def assign_due(context: StreamsContext, group_id: str, now: Moment) -> list[EveryEffect]:
    """The time for another target has come, or a helper thread has made it; nobody needs to ask for it."""
    group = context.find(group_id)
    if group is None:
        return []
    memory = context.memory(group_id)
    memory.waits_for_members = False
    if group.is_empty or group.topology is None or group.epoch <= group.assignment_epoch:
        return []
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group_id, now, delay_ms)
        return []
    try:
        configured = context.configured(group_id, group.topology)
    except InvalidTopology:
        # The next heartbeat says so.
        return []
    job = job_of(context, group, group.epoch, configured, group.members)
    if job.is_small:
        made: Mapping[str, Assignment] = job.run()
    else:
        done = memory.job
        is_current = done is not None and done.epoch == group.epoch and done.processes == job.processes
        if memory.made is None or not is_current:
            send_to_helper(context, job)
            return []
        made = memory.made
    context.assign_in(group_id, now, RETRY_MS)
    return [Write(group_id, tuple(group.target_records(group.epoch, made, now.wall_ms)), only_alone=True)]


def job_done(context: StreamsContext, job: AssignmentJob, result: object, now: Moment) -> None:
    """A helper thread has finished; an exception in place of a result means that it could not."""
    memory = context.memory(job.group_id)
    if memory.job is not job:
        return
    if isinstance(result, Exception):
        memory.job = None
        return
    memory.made = result  # type: ignore[assignment]
    context.assign_in(job.group_id, now, 0)
