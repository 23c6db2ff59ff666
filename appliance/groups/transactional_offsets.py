"""TxnOffsetCommit (versions 0 to 5): offsets that count once their transaction is committed, and its end.

- Until the marker comes they are pending: nobody sees them, and OffsetFetch with `require_stable` (KIP-447) is told to
  come again.
- From v3 on a member says its generation and is fenced; before, whoever knows the transaction may commit. Unlike
  OffsetCommit it may do so while the group waits for assignments.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.context import Context, GroupEffect
from appliance.groups.group import Group
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.groups.stored import CommittedOffset, OffsetRecord, PendingOffsetRecord, TransactionEnded
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from appliance.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerPartitionResult


def commit(context: Context, call: Call, request: TxnOffsetCommitRequest, now: Moment) -> list[GroupEffect]:
    """Decide a TxnOffsetCommit whose partition has been found to be in the transaction."""
    error = _may_commit(request, context.find(request.group_id))
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    return write(context, call, request, now)


def write(context: Context, call: Call, request: TxnOffsetCommitRequest, now: Moment) -> list[GroupEffect]:
    """The offsets wait in the log for the end of their transaction."""
    topics: list[TxnOffsetCommitResponseTopic] = []
    records: list[PendingOffsetRecord] = []
    for topic in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=topic.name)
        topics.append(answered)
        for partition in topic.partitions:
            error = ErrorCode.NONE
            if len(partition.committed_metadata or "") > context.config.offset_metadata_max_bytes:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offset = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now.wall_ms,
                )
                record = OffsetRecord(request.group_id, topic.name, partition.partition_index, offset)
                records.append(PendingOffsetRecord(request.producer_id, record))
            answered.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
            )
    answer = Answer(call, TxnOffsetCommitResponse(topics=topics))
    if not records:
        return [answer]
    producer = (request.producer_id, request.producer_epoch)
    return [Write(request.group_id, tuple(records), (answer,), producer=producer)]


def _may_commit(request: TxnOffsetCommitRequest, group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    if request.generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if request.generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.NONE
    error = group.identify(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def end(call: Call, marker: WritableTxnMarker, now: Moment) -> list[GroupEffect]:
    """Write a transaction's marker into this partition; with it its offsets are committed, or gone."""
    batch = build_marker(
        COMMIT if marker.transaction_result else ABORT,
        marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        now_ms=now.wall_ms,
    )
    ended = TransactionEnded(marker.producer_id, marker.transaction_result)
    answer = Answer(call, WritableTxnMarkerPartitionResult())
    return [Write(f"transaction of producer {marker.producer_id}", (ended,), (answer,), marker=batch)]
