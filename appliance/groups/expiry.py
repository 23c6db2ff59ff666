"""Offsets and groups that nobody needs any more (`offsets.retention.minutes`, KIP-211).

- Nobody is in the group: its offsets are kept for the retention time from the moment it became empty (in records of old
  brokers, which do not tell it: from the commit). Then the group goes too.
- Members read: only offsets of topics that none of them subscribes to, from the last commit.
- Consumers without a group (offsets only): from the last commit.
- An offset whose client said how long to keep it expires then.
"""

from __future__ import annotations

from appliance.coordinator.calls import Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, ExpiryDue, GroupEffect, OtherGroup
from appliance.groups.group import Group
from appliance.groups.states import GroupState
from appliance.groups.stored import NO_TIMESTAMP, CommittedOffset, GenerationRecord, GroupRecord, OffsetRecord

GROUPS_AT_ONCE = 200
"""Groups looked at in one go, so that requests need not wait for all of them."""
PAUSE_MS = 5
RECORDS_PER_WRITE = 1_500
"""With the longest names they still fit into one batch."""


class GroupDeleted:
    """Follow-up of the record that ends a group."""


def schedule_first(context: Context, now: Moment, jitter: float) -> None:
    """Let the first round begin within one interval; `jitter` (0 to 1) spreads the partitions of a broker."""
    _schedule(context, now, int(context.config.offsets_retention_check_interval_ms * (0.5 + jitter / 2)))


def expire(context: Context, now: Moment) -> list[GroupEffect]:
    """Look at the next few groups."""
    if not context.to_expire:
        context.to_expire = list(dict.fromkeys([*context.stored.group_ids(), *context.groups]))
    effects: list[GroupEffect] = []
    for _ in range(min(GROUPS_AT_ONCE, len(context.to_expire))):
        effects += _expire_group(context, context.to_expire.pop(), now)
    is_done = not context.to_expire
    _schedule(context, now, context.config.offsets_retention_check_interval_ms if is_done else PAUSE_MS)
    return effects


def deletion_of(context: Context, group_id: str) -> list[GroupRecord]:
    """The records that end a group with all its offsets."""
    records: list[GroupRecord] = [
        OffsetRecord(group_id, topic, partition, None) for topic, partition, _ in context.stored.offsets_of(group_id)
    ]
    if group_id in context.stored.generations:
        records.append(GenerationRecord(group_id, None))
    return records


def writes_of(group_id: str, records: list[GroupRecord]) -> list[Write[GroupRecord]]:
    """The records in writes of a bounded size, to be dropped if anything else is written about the group just now."""
    chunks = [records[start : start + RECORDS_PER_WRITE] for start in range(0, len(records), RECORDS_PER_WRITE)]
    return [Write(group_id, tuple(chunk), only_alone=True) for chunk in chunks]


def _expire_group(context: Context, group_id: str, now: Moment) -> list[GroupEffect]:
    group = context.find(group_id)
    if group is None or (context.stored.pending and context.stored.has_pending(group_id)):
        return []
    other = context.others.get(group_id)
    if other is not None:
        return _expire_other(context, group_id, other, now)
    records: list[GroupRecord] = []
    is_all_gone = True
    for topic, partition, offset in context.stored.offsets_of(group_id):
        if _is_over(context, group, topic, offset, now):
            records.append(OffsetRecord(group_id, topic, partition, None))
        else:
            is_all_gone = False
    context.forget_if_stored(group)
    writes = writes_of(group_id, records)
    if is_all_gone and group.forgettable and group_id in context.stored.generations:
        end = GenerationRecord(group_id, None)
        writes.append(Write(group_id, (end,), follow_up=GroupDeleted(), only_alone=True))
    return list(writes)


def _expire_other(context: Context, group_id: str, other: OtherGroup, now: Moment) -> list[GroupEffect]:
    """Each offset counts from its last commit, unless somebody reads its topic."""
    kept_ms = context.config.offsets_retention_ms
    records: list[GroupRecord] = []
    is_all_gone = True
    for topic, partition, offset in context.stored.offsets_of(group_id):
        if offset.expire_timestamp_ms != NO_TIMESTAMP:
            is_over = now.wall_ms >= offset.expire_timestamp_ms
        else:
            is_over = now.wall_ms - offset.commit_timestamp_ms >= kept_ms
        if is_over and not other.may_read(topic):
            records.append(OffsetRecord(group_id, topic, partition, None))
        else:
            is_all_gone = False
    if is_all_gone and other.is_empty and group_id not in context.groups:
        records += other.tombstones()
    return list(writes_of(group_id, records))


def _is_over(context: Context, group: Group, topic: str, offset: CommittedOffset, now: Moment) -> bool:
    if group.state not in (GroupState.EMPTY, GroupState.STABLE):
        return False
    if group.state is GroupState.STABLE and (not group.is_of_consumers or group.may_read(topic)):
        return False
    if offset.expire_timestamp_ms != NO_TIMESTAMP:
        return now.wall_ms >= offset.expire_timestamp_ms
    kept_from_ms = offset.commit_timestamp_ms
    is_left = group.state is GroupState.EMPTY and group.protocol_type != ""
    if is_left and group.state_since_ms != NO_TIMESTAMP:
        kept_from_ms = group.state_since_ms
    return now.wall_ms - kept_from_ms >= context.config.offsets_retention_ms


def _schedule(context: Context, now: Moment, delay_ms: int) -> None:
    context.deadlines.set(("expiry",), now.monotonic_ms + delay_ms, ExpiryDue())
