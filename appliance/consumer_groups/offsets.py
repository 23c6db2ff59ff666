"""Offsets of a consumer group: who may commit, fetch and delete them. The rest is `groups.offsets`.

- A member commits under its epoch. One that is behind is told so (STALE_MEMBER_EPOCH), unless the partition was its own
  in that epoch already and still is: then nobody else can have committed since (KIP-1251).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.context import AnyEffect, ConsumerContext
from appliance.consumer_groups.stored import ConsumerGroup, MemberInfo
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.groups import offsets, transactional_offsets
from appliance.groups.context import Context, GroupEffect
from appliance.groups.epoch_groups import EpochGroup
from appliance.groups.refusals import refusal
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup
from appliance.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

MEMBER_EPOCH_SINCE = 9

PartitionCheck = Callable[[uuid.UUID, int], ErrorCode]


def commit(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: OffsetCommitRequest, now: Moment
) -> list[AnyEffect]:
    """Decide an OffsetCommit."""
    epoch, member_id = request.generation_id_or_member_epoch, request.member_id
    error, check = _may_commit(group, member_id, epoch, knows_epochs=call.version >= MEMBER_EPOCH_SINCE)
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    member = group.members.get(member_id)
    if member is not None and member.classic is not None:
        context.expect_member(group.group_id, member_id, now, member.classic.session_timeout_ms)
    return list(offsets.write(context.classic, call, request, now, check))


def commit_in_transaction(
    context: ConsumerContext, group: ConsumerGroup, call: Call, request: TxnOffsetCommitRequest, now: Moment
) -> list[AnyEffect]:
    """Decide a TxnOffsetCommit."""
    may = partial(_may_commit, group, request.member_id, request.generation_id, knows_epochs=True)
    return list(write_in_transaction(context.classic, call, request, now, may))


def write_in_transaction(
    context: Context,
    call: Call,
    request: TxnOffsetCommitRequest,
    now: Moment,
    may_commit: Callable[[], tuple[ErrorCode, PartitionCheck | None]],
) -> list[GroupEffect]:
    """Who names no member may always; a member has to be in its present epoch."""
    error = ErrorCode.NONE
    if request.generation_id >= 0 or request.member_id:
        error, check = may_commit()
        if error is ErrorCode.STALE_MEMBER_EPOCH or check is not None:
            error = ErrorCode.ILLEGAL_GENERATION
    if error is not ErrorCode.NONE:
        return [refusal(call, error)]
    return transactional_offsets.write(context, call, request, now)


def _may_commit(
    group: ConsumerGroup, member_id: str, epoch: int, *, knows_epochs: bool
) -> tuple[ErrorCode, PartitionCheck | None]:
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE, None
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    current = group.current_of(member_id)
    if member.classic is not None:
        return (ErrorCode.NONE if epoch == current.epoch else ErrorCode.ILLEGAL_GENERATION), None
    if not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION, None
    if epoch == current.epoch:
        return ErrorCode.NONE, None
    if epoch > current.epoch or epoch < 0:
        return ErrorCode.STALE_MEMBER_EPOCH, None

    def check(topic_id: uuid.UUID, partition: int) -> ErrorCode:
        for owned in (current.assigned, current.pending_revocation):
            since = owned.get(topic_id, {}).get(partition)
            if since is not None:
                return ErrorCode.NONE if epoch >= since else ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.STALE_MEMBER_EPOCH

    return ErrorCode.NONE, check


def may_fetch(group: EpochGroup[Any, Any, Any] | None, request: OffsetFetchRequestGroup) -> ErrorCode:
    """Whether a member that names itself may see offsets; who does not, may."""
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    member_id = request.member_id or ""
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.member_epoch == group.current_of(member_id).epoch:
        return ErrorCode.NONE
    is_classic = isinstance(member, MemberInfo) and member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
