"""An answer that says nothing but an error, in the form that each request has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call
from appliance.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from appliance.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from appliance.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from appliance.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from appliance.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerPartitionResult
from appliance.wire.schema import Struct

PROTOCOL_MAY_BE_NULL_SINCE = 7
"""JoinGroup before this version says an empty name where there is no protocol."""


def refuse(call: Call, error: ErrorCode) -> Struct:
    """The answer to `call` with this error."""
    return _FORMS[type(call.request)](call, error)


def refusal(call: Call, error: ErrorCode) -> Answer:
    """The same as an effect."""
    return Answer(call, refuse(call, error))


def refused_join(version: int, member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """The member did not get in; `member_id` is the one it should come back with, if any."""
    protocol_name = None if version >= PROTOCOL_MAY_BE_NULL_SINCE else ""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=protocol_name)


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """None of the offsets was committed."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refused_transactional_commit(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    """None of the offsets became part of the transaction."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _join(call: Call, error: ErrorCode) -> Struct:
    # UNKNOWN_MEMBER_ID makes a client start afresh, without an id.
    request: Any = call.request
    member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else request.member_id
    return refused_join(call.version, member_id, error)


def _heartbeat(_: Call, error: ErrorCode) -> Struct:
    # While groups are loaded a member must not believe that it was thrown out.
    return HeartbeatResponse(error_code=ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error)


def _offset_commit(call: Call, error: ErrorCode) -> Struct:
    request: Any = call.request
    return refused_commit(request, error)


def _transactional_commit(call: Call, error: ErrorCode) -> Struct:
    request: Any = call.request
    return refused_transactional_commit(request, error)


def _offset_fetch(call: Call, error: ErrorCode) -> Struct:
    request: Any = call.request
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)


def _delete_groups(call: Call, error: ErrorCode) -> Struct:
    request: Any = call.request
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=error) for group_id in request.groups_names]
    )


_FORMS: dict[type[Struct], Callable[[Call, ErrorCode], Struct]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda _, error: SyncGroupResponse(error_code=error),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: lambda _, error: LeaveGroupResponse(error_code=error),
    OffsetCommitRequest: _offset_commit,
    TxnOffsetCommitRequest: _transactional_commit,
    WritableTxnMarker: lambda _, error: WritableTxnMarkerPartitionResult(error_code=error),
    OffsetFetchRequestGroup: _offset_fetch,
    DeleteGroupsRequest: _delete_groups,
    OffsetDeleteRequest: lambda _, error: OffsetDeleteResponse(error_code=error),
    ConsumerGroupHeartbeatRequest: lambda _, error: ConsumerGroupHeartbeatResponse(error_code=error),
    StreamsGroupHeartbeatRequest: lambda _, error: StreamsGroupHeartbeatResponse(error_code=error),
}
