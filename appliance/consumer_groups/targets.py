"""When a group gets another target, and what of it has to be written.

A target belongs to a group epoch: whenever members, what they read, or topics change, the epoch rises, and a new target
follows, at most one in `consumer.assignment.interval.ms` (KIP-1263). Small ones are made at once, large ones by a
helper thread, so that the loop goes on.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from appliance.consumer_groups.assignors import ASSIGNORS, Subscriber, Target
from appliance.consumer_groups.context import (
    AnyEffect,
    AssignmentJob,
    ConsumerContext,
    JobApplied,
)
from appliance.consumer_groups.stored import (
    ConsumerGroup,
    MemberInfo,
)
from appliance.coordinator.calls import Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS

AT_ONCE_MAX = 5_000
"""Partitions, and members times topics, of a target that is made on the loop: a few milliseconds."""


def assignment_of(
    context: ConsumerContext,
    group: ConsumerGroup,
    epoch: int,
    members: Mapping[str, MemberInfo],
    targets: Mapping[str, Target] | None = None,
) -> AssignmentJob:
    """What an assignor has to know. `members` and `targets` may be ahead of the log."""
    topics = context.world().topics
    partitions: dict[uuid.UUID, int] = {}
    subscribers: list[Subscriber] = []
    alike: dict[tuple[tuple[str, ...], str], frozenset[uuid.UUID]] = {}
    before = group.targets if targets is None else targets
    for member_id, member in members.items():
        key = (member.topic_names, member.topic_regex)
        wanted = alike.get(key)
        if wanted is None:
            known = [topics[name] for name in set(group.topics_of(member)) if name in topics]
            partitions.update((topic.topic_id, len(topic.partitions)) for topic in known)
            wanted = alike[key] = frozenset(topic.topic_id for topic in known)
        subscribers.append(Subscriber(member_id, wanted, member.instance_id, before.get(member_id, {})))
    assignor = preferred_assignor(members, context.config.assignors)
    return AssignmentJob(group.group_id, epoch, assignor, subscribers, partitions)


def preferred_assignor(members: Mapping[str, MemberInfo], assignors: tuple[str, ...]) -> str:
    """What most members who say anything ask for."""
    votes: dict[str, int] = {}
    for member in members.values():
        if member.server_assignor in ASSIGNORS:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name]) if votes else assignors[0]


def is_small(job: AssignmentJob) -> bool:
    """Whether it may be run on the loop."""
    size = sum(job.partitions.values()) + sum(len(each.topics) for each in job.subscribers)
    return size <= AT_ONCE_MAX


def assign_due(context: ConsumerContext, group_id: str, now: Moment) -> list[AnyEffect]:
    """The time for another target has come; nobody needs to ask for it."""
    group = context.find(group_id)
    if group is None or group.is_empty or group.epoch <= group.assignment_epoch:
        return []
    delay_ms = context.wait_ms(group, now)
    if delay_ms:
        context.assign_in(group_id, now, delay_ms)
        return []
    job = assignment_of(context, group, group.epoch, group.members)
    if not is_small(job):
        send_to_helper(context, job)
        return []
    context.assign_in(group_id, now, RETRY_MS)
    records = group.target_records(group.epoch, job.run(), now.wall_ms)
    return [Write(group_id, tuple(records), only_alone=True)]


def send_to_helper(context: ConsumerContext, job: AssignmentJob) -> None:
    """Have a target made, unless that is under way."""
    memory = context.memory(job.group_id)
    known = memory.jobs.get(AssignmentJob)
    if not isinstance(known, AssignmentJob) or known.epoch != job.epoch:
        memory.jobs[AssignmentJob] = job
        context.jobs.append(job)


def assignment_made(context: ConsumerContext, job: AssignmentJob, now: Moment) -> list[AnyEffect]:
    """A helper thread has made a target: it counts if the group is still as it was."""
    memory = context.memory(job.group_id)
    group = context.find(job.group_id)
    made: Mapping[str, Target] | None = memory.results.get(AssignmentJob)  # type: ignore[assignment]
    is_current = group is not None and memory.jobs.get(AssignmentJob) is job and group.epoch == job.epoch
    # A member may have taken another's place meanwhile.
    if group is None or made is None or not is_current or made.keys() != group.members.keys():
        context.job_over(job)
        if group is not None:
            context.assign_in(job.group_id, now, 0)
        return []
    context.apply(job, now, RETRY_MS)
    records = group.target_records(job.epoch, made, now.wall_ms)
    return [Write(job.group_id, tuple(records), follow_up=JobApplied(job), only_alone=True)]
