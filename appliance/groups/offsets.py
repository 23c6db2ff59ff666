"""OffsetCommit (versions 0 to 10), OffsetFetch (0 to 10) and OffsetDelete (0), for one group.

- Members commit under their generation; anyone may commit, with generation -1 and no member id, for a group that nobody
  is in: administrators, and consumers that manage their partitions themselves.
- The text that comes with an offset comes back with it, up to `offset.metadata.max.bytes`.
- Only committed offsets are shown; one that an open transaction may change is UNSTABLE_OFFSET_COMMIT to those who ask
  for stable ones (`require_stable`, KIP-447).

OffsetCommit: v1 may say when the offset was committed · v2 to v4 may say how long to keep the offset · v7 static
members · v10 topic ids, which the handler turns into names · OffsetFetch: v8 many groups (KIP-709), which the handler
takes apart
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, GroupEffect
from appliance.groups.group import Group
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.groups.stored import NO_TIMESTAMP, CommittedOffset, OffsetRecord
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from appliance.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from appliance.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUP_NOT_FOUND_SINCE = 9
"""Before this version a commit by a member of an unknown group is told ILLEGAL_GENERATION."""
NO_OFFSET = -1


def commit(context: Context, call: Call, request: OffsetCommitRequest, now: Moment) -> list[GroupEffect]:
    """Decide an OffsetCommit. Topics have names and ids, and every partition exists: the handler has seen to it."""
    group = context.find(request.group_id)
    error = _may_commit(call, request, group)
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        context.expect_heartbeat(group, group.members[request.member_id], now)
    return write(context, call, request, now)


def write(
    context: Context,
    call: Call,
    request: OffsetCommitRequest,
    now: Moment,
    check: Callable[[uuid.UUID, int], ErrorCode] | None = None,
) -> list[GroupEffect]:
    """Commit what may be committed; `check` may refuse single partitions."""
    topics: list[OffsetCommitResponseTopic] = []
    records: list[OffsetRecord] = []
    keep_ms = request.retention_time_ms
    expire_timestamp_ms = NO_TIMESTAMP if keep_ms == NO_TIMESTAMP else now.wall_ms + keep_ms
    for topic in request.topics:
        partitions: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            error = ErrorCode.NONE if check is None else check(topic.topic_id, partition.partition_index)
            if len(partition.committed_metadata or "") > context.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif error is ErrorCode.NONE:
                offset = _committed(partition, topic.topic_id, now, expire_timestamp_ms)
                records.append(OffsetRecord(request.group_id, topic.name, partition.partition_index, offset))
            partitions.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    answer = Answer(call, OffsetCommitResponse(topics=topics))
    return [Write(request.group_id, tuple(records), (answer,))] if records else [answer]


def _may_commit(call: Call, request: OffsetCommitRequest, group: Group | None) -> ErrorCode:
    generation_id, member_id = request.generation_id_or_member_epoch, request.member_id
    if group is None:
        # A commit without a generation makes the group.
        if generation_id < 0:
            return ErrorCode.NONE
        known = call.version >= GROUP_NOT_FOUND_SINCE
        return ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and member_id == "" and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.identify(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    # It knows the new generation, but not yet what it owns in it.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING_REBALANCE else ErrorCode.NONE


def _committed(
    partition: OffsetCommitRequestPartition, topic_id: uuid.UUID, now: Moment, expire_timestamp_ms: int
) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now.wall_ms if partition.commit_timestamp < 0 else partition.commit_timestamp,
        expire_timestamp_ms,
        topic_id,
    )


def fetch(
    context: Context, request: OffsetFetchRequestGroup, *, require_stable: bool = False
) -> OffsetFetchResponseGroup:
    """The committed offsets of a group; all of them if no topics are named. An unknown group has none."""
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        for name, stored in context.stored.offsets.get(request.group_id, {}).items():
            partitions = [
                _unstable(partition)
                if require_stable and context.stored.is_pending(request.group_id, name, partition)
                else _fetched(partition, offset)
                for partition, offset in stored.items()
            ]
            response.topics.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
        return response
    for topic in request.topics:
        partitions = []
        for partition in topic.partition_indexes:
            if require_stable and context.stored.is_pending(request.group_id, topic.name, partition):
                partitions.append(_unstable(partition))
                continue
            offset = context.stored.offset(request.group_id, topic.name, partition)
            is_current = offset is not None and offset.is_of(topic.topic_id)
            partitions.append(_fetched(partition, offset if is_current else None))
        response.topics.append(
            OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return response


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=NO_OFFSET, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )


def _fetched(partition: int, offset: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if offset is None:
        return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET)
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


def delete(context: Context, call: Call, request: OffsetDeleteRequest) -> list[GroupEffect]:
    """Decide an OffsetDelete: offsets of topics that the group's members do not read (KIP-496)."""
    if request.group_id == "":
        return [refusal(call, ErrorCode.INVALID_GROUP_ID)]
    group = context.find(request.group_id)
    if group is None:
        return [refusal(call, ErrorCode.GROUP_ID_NOT_FOUND)]
    if group.state is not GroupState.EMPTY and not group.is_of_consumers:
        return [refusal(call, ErrorCode.NON_EMPTY_GROUP)]
    is_used = group.state is not GroupState.EMPTY
    return delete_unused(context, call, request, lambda topic: is_used and group.may_read(topic))


def delete_unused(
    context: Context, call: Call, request: OffsetDeleteRequest, is_read: Callable[[str], bool]
) -> list[GroupEffect]:
    """Delete the offsets of topics that nobody reads."""
    topics: list[OffsetDeleteResponseTopic] = []
    records: list[OffsetRecord] = []
    for topic in request.topics:
        in_use = is_read(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if in_use else ErrorCode.NONE
        if not in_use:
            records += _tombstones(context, request.group_id, topic)
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
        )
    answer = Answer(call, OffsetDeleteResponse(topics=topics))
    return [Write(request.group_id, tuple(records), (answer,))] if records else [answer]


def _tombstones(context: Context, group_id: str, topic: OffsetDeleteRequestTopic) -> list[OffsetRecord]:
    partitions = {partition.partition_index: None for partition in topic.partitions}
    return [
        OffsetRecord(group_id, topic.name, partition, None)
        for partition in partitions
        if context.stored.offset(group_id, topic.name, partition) is not None
    ]


def topics_deleted(context: Context, deleted: list[tuple[str, uuid.UUID]]) -> list[GroupEffect]:
    """Forget the offsets of topics (name, id) that are no more; not those of a new topic of the same name."""
    effects: list[GroupEffect] = []
    for group_id, topics in context.stored.offsets.items():
        records = [
            OffsetRecord(group_id, name, partition, None)
            for name, topic_id in deleted
            for partition, offset in topics.get(name, {}).items()
            if offset.topic_id in (ZERO_UUID, topic_id)
        ]
        if records:
            effects.append(Write(group_id, tuple(records)))
    return effects
