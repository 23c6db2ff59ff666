"""Offsets of a group of Kafka Streams: who may commit them. The rest is `groups.offsets`.

A member commits under its epoch. One that is behind is told so (STALE_MEMBER_EPOCH), unless the partition was that of a
task of its own in that epoch already and still is: then nobody else can have committed since (KIP-1251).
"""

from __future__ import annotations

import uuid
from functools import partial

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.offsets import MEMBER_EPOCH_SINCE, PartitionCheck, write_in_transaction
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.groups import offsets
from appliance.groups.refusals import refusal
from appliance.streams_groups.context import EveryEffect, StreamsContext
from appliance.streams_groups.stored import StreamsGroup
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.txn_offset_commit import TxnOffsetCommitRequest


def commit(
    context: StreamsContext, group: StreamsGroup, call: Call, request: OffsetCommitRequest, now: Moment
) -> list[EveryEffect]:
    """Decide an OffsetCommit."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    error, check = _may_commit(context, group, member_id, epoch, knows_epochs=call.version >= MEMBER_EPOCH_SINCE)
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    return list(offsets.write(context.classic, call, request, now, check))


def commit_in_transaction(
    context: StreamsContext, group: StreamsGroup, call: Call, request: TxnOffsetCommitRequest, now: Moment
) -> list[EveryEffect]:
    """Decide a TxnOffsetCommit."""
    may = partial(_may_commit, context, group, request.member_id, request.generation_id, knows_epochs=True)
    return list(write_in_transaction(context.classic, call, request, now, may))


def _may_commit(
    context: StreamsContext, group: StreamsGroup, member_id: str, epoch: int, *, knows_epochs: bool
) -> tuple[ErrorCode, PartitionCheck | None]:
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE, None
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    if not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION, None
    current = group.current_of(member_id)
    if epoch == current.epoch:
        return ErrorCode.NONE, None
    if epoch > current.epoch or epoch < 0:
        return ErrorCode.STALE_MEMBER_EPOCH, None
    topics = context.world().topics
    readers: dict[uuid.UUID, list[str]] = {}
    for each in group.topology.subtopologies if group.topology is not None else ():
        for name in [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]:
            if name in topics:
                readers.setdefault(topics[name].topic_id, []).append(each.subtopology_id)

    def check(topic_id: uuid.UUID, partition: int) -> ErrorCode:
        for subtopology in readers.get(topic_id, ()):
            since = current.epochs.get((subtopology, partition))
            if since is not None:
                return ErrorCode.NONE if epoch >= since else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.STALE_MEMBER_EPOCH

    return ErrorCode.NONE, check
