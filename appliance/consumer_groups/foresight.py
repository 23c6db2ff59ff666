"""Decisions about a consumer group while earlier ones are still on their way into the log.

Many members ask at once when a group rebalances, and each decision would otherwise wait for the write of the one
before. So it rests on a twin of the group that has replayed those writes already. The stored group changes when they
are committed, and is what everybody sees who only looks. Should a write fail, the shard refuses what was decided upon
it, and the twin is thrown away: that is all there is to roll back.

Heartbeats and commits of offsets are foreseen, beside writes that leave the group a consumer group; everything else
waits.
"""

from __future__ import annotations

from collections.abc import Iterable

from appliance.consumer_groups.context import ConsumerContext, JobApplied
from appliance.consumer_groups.stored import (
    AnyRecord,
    ConsumerGroup,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.moment import Moment
from appliance.groups.epoch_groups import OfGroup
from appliance.groups.stored import OffsetRecord
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.offset_commit import OffsetCommitRequest

_FORESEEABLE = frozenset((ConsumerGroupHeartbeatRequest, OffsetCommitRequest))
_PLAIN = frozenset(
    (GroupEpochRecord, MemberRecord, TargetEpochRecord, TargetRecord, CurrentRecord, RegexRecord, OffsetRecord)
)


class GroupForesight:
    """A `appliance.coordinator.shard.Foresight`."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._closed: dict[str, None] = {}
        """Groups of which a write is open that nothing may be built on."""

    def begin(self, call: Call, key: str, writes: Iterable[Write[AnyRecord]]) -> bool:
        """Whether the request may be decided as if the open writes of its group were committed."""
        if type(call.request) not in _FORESEEABLE or key in self._closed:
            return False
        context = self._context
        ahead = context.ahead.get(key)
        if ahead is None:
            group = context.committed(key)
            if group is None or key in context.classic.groups or key in context.upgrading:
                return False
            writes = list(writes)
            if not all(map(_is_plain, writes)):
                return False
            ahead = group.twin()
            for write in writes:
                _replay(ahead, write)
        if ahead.is_empty:
            return False
        context.ahead[key] = ahead
        return True

    def follow(self, write: Write[AnyRecord]) -> None:
        """One more is on its way."""
        if _is_plain(write):
            _replay(self._context.ahead[write.key], write)
        else:
            self._closed[write.key] = None

    def end(self, key: str, now: Moment, *, failed: bool) -> None:
        """The stored group counts again."""
        context = self._context
        del context.ahead[key]
        self._closed.pop(key, None)
        group = context.committed(key)
        if failed and group is not None:
            # Deadlines and what was compared may be those of a state that never came.
            context.memory(key).seen_topics = None
            context.expect_anew(group, now)


def _is_plain(write: Write[AnyRecord]) -> bool:
    if write.marker or write.producer is not None or not isinstance(write.follow_up, JobApplied | None):
        return False
    return all(
        type(record) in _PLAIN and not (isinstance(record, GroupEpochRecord) and record.epoch is None)
        for record in write.records
    )


def _replay(ahead: ConsumerGroup, write: Write[AnyRecord]) -> None:
    for record in write.records:
        if isinstance(record, OfGroup):
            ahead.replay(record)
