"""Which topics the regular expressions of a group meet: a helper thread looks, the answer is a record.

They are looked at when a member brings a new one, when topics have changed (at most every ten seconds), and at the
latest after `group.consumer.regex.refresh.interval.ms`. All of a group's are looked at together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from appliance.consumer_groups.context import AnyEffect, ConsumerContext, JobApplied, RegexJob
from appliance.consumer_groups.stored import (
    AnyRecord,
    ConsumerGroup,
    GroupEpochRecord,
    MemberInfo,
    RegexRecord,
    ResolvedRegex,
)
from appliance.coordinator.calls import Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_context import RETRY_MS

ASKED_AGAIN_AFTER_MS = 10_000


def ask_for_regexes(
    context: ConsumerContext,
    group: ConsumerGroup,
    member: MemberInfo,
    now: Moment,
    may_describe: Callable[[str], bool] | None = None,
) -> None:
    """Have the group's expressions looked at if that is due; `member` is ahead of the log.

    Topics that it may not describe are not found, for the whole group, as in Kafka.
    """
    if not member.topic_regex:
        return
    memory = context.memory(group.group_id)
    world = context.world()
    if RegexJob in memory.jobs:
        return
    if member.topic_regex in group.regexes:
        resolved_ms = min(each.timestamp_ms for each in group.regexes.values())
        age_ms = now.wall_ms - resolved_ms
        has_changed = world.position > min(each.version for each in group.regexes.values())
        is_due = age_ms >= context.config.regex_refresh_interval_ms
        asked_ms = memory.regexes_asked_ms
        if has_changed and (asked_ms is None or now.monotonic_ms - asked_ms >= ASKED_AGAIN_AFTER_MS):
            is_due = True
        if not is_due:
            return
    _ask(context, group, [member.topic_regex], now, may_describe)


def _ask(
    context: ConsumerContext,
    group: ConsumerGroup,
    more: Iterable[str],
    now: Moment,
    may_describe: Callable[[str], bool] | None,
) -> None:
    memory, world = context.memory(group.group_id), context.world()
    regexes = dict.fromkeys(each.topic_regex for each in group.members.values() if each.topic_regex)
    wanted = tuple({**regexes, **dict.fromkeys(more)})
    job = RegexJob(group.group_id, wanted, world.topics, world.position, may_describe)
    memory.jobs[RegexJob], memory.regexes_asked_ms = job, now.monotonic_ms
    context.jobs.append(job)


def forgotten_regexes(group: ConsumerGroup, members: Mapping[str, MemberInfo]) -> list[AnyRecord]:
    """The end of expressions that none of these members has."""
    used = {member.topic_regex for member in members.values()}
    return [RegexRecord(group.group_id, regex, None) for regex in group.regexes if regex not in used]


def regexes_resolved(context: ConsumerContext, job: RegexJob, now: Moment) -> list[AnyEffect]:
    """A helper thread knows the topics: write them down; the epoch rises if anybody reads others now."""
    memory = context.memory(job.group_id)
    group = context.find(job.group_id)
    found: Mapping[str, tuple[str, ...]] | None = memory.results.get(RegexJob)  # type: ignore[assignment]
    if group is None or memory.jobs.get(RegexJob) is not job or found is None:
        context.job_over(job)
        return []
    used = {member.topic_regex for member in group.members.values()}
    records: list[AnyRecord] = []
    changed = False
    for regex, topics in found.items():
        if regex not in used:
            continue
        before = group.regexes.get(regex)
        changed |= topics != (before.topics if before is not None else ())
        records.append(RegexRecord(group.group_id, regex, ResolvedRegex(topics, job.version, now.wall_ms)))
    if changed:
        resolved = {**group.regexes, **{regex: ResolvedRegex(found[regex], 0, 0) for regex in found}}
        names = {name for member in group.members.values() for name in group.topics_of(member, resolved)}
        records.append(GroupEpochRecord(group.group_id, group.epoch + 1, context.metadata_hash(names)))
        context.assign_in(group.group_id, now, 0)
    if not records:
        context.job_over(job)
        return []
    context.apply(job, now, RETRY_MS)
    return [Write(group.group_id, tuple(records), follow_up=JobApplied(job), only_alone=True)]
