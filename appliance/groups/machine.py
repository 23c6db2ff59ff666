"""The groups of one partition of `__consumer_offsets`: requests and time in; records, answers and deadlines out."""

from __future__ import annotations

import uuid

from appliance.base.errors import ErrorCode, invariant
from appliance.base.randomness import Randomness
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.groups import admin, barrier, expiry, joining, offsets, presence, syncing, transactional_offsets
from appliance.groups.config import GroupConfig
from appliance.groups.context import (
    Context,
    DeadlineKey,
    Event,
    ExpiryDue,
    GroupEffect,
    InitialDelayOver,
    JoinOver,
    OtherEvent,
    SessionOver,
    SyncOver,
)
from appliance.groups.group import Group
from appliance.groups.records import encode_record
from appliance.groups.refusals import refusal, refuse
from appliance.groups.stored import GroupRecord, StoredGroups
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.describe_groups import DescribedGroup
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest
from appliance.wire.messages.leave_group import LeaveGroupRequest
from appliance.wire.messages.list_groups import ListedGroup
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.offset_delete import OffsetDeleteRequest
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from appliance.wire.messages.sync_group import SyncGroupRequest
from appliance.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from appliance.wire.messages.write_txn_markers import WritableTxnMarker
from appliance.wire.schema import Struct


class GroupMachine:
    """Decides for `appliance.coordinator.shard.CoordinatorShard`."""

    def __init__(self, config: GroupConfig, randomness: Randomness, stored: StoredGroups) -> None:
        self.context = Context(config, randomness, stored)

    @property
    def stored(self) -> StoredGroups:
        """What the log says."""
        return self.context.stored

    @property
    def groups(self) -> dict[str, Group]:
        """Groups that somebody is in, or about to be; to look at."""
        return self.context.groups

    @property
    def deadlines(self) -> Deadlines[DeadlineKey, Event]:
        return self.context.deadlines

    def loaded(self, now: Moment) -> list[GroupEffect]:
        """The stored state is complete: members have one session timeout to be heard."""
        context = self.context
        effects: list[GroupEffect] = []
        for group_id, generation in context.stored.generations.items():
            if not generation.members:
                continue
            group = context.groups[group_id] = Group(group_id, generation)
            for member in group.members.values():
                context.expect_heartbeat(group, member, now)
            if len(group.members) > context.config.max_size:
                effects += barrier.prepare_rebalance(context, group, now)
        expiry.schedule_first(context, now, context.randomness.uniform(0.0, 1.0))
        return effects

    def time_anew(self, now: Moment) -> list[GroupEffect]:
        """Nobody could reach us for a while, which was not the members' fault: they have their full time again."""
        barrier.time_anew(self.context, now)
        return []

    def handle(self, call: Call, now: Moment) -> list[GroupEffect]:
        """Decide a request that names one group."""
        context = self.context
        match call.request:
            case HeartbeatRequest() as request:
                return presence.heartbeat(context, call, request, now)
            case OffsetCommitRequest() as request:
                return offsets.commit(context, call, request, now)
            case JoinGroupRequest() as request:
                return joining.join(context, call, request, now)
            case SyncGroupRequest() as request:
                return syncing.sync(context, call, request, now)
            case LeaveGroupRequest() as request:
                return presence.leave(context, call, request, now)
            case TxnOffsetCommitRequest() as request:
                return transactional_offsets.commit(context, call, request, now)
            case WritableTxnMarker() as marker:
                return transactional_offsets.end(call, marker, now)
            case OffsetDeleteRequest() as request:
                return offsets.delete(context, call, request)
            case DeleteGroupsRequest() as request:
                return admin.delete(context, call, request)
        invariant(False, f"{type(call.request).__name__} is no request to a group")
        return []

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; with `require_stable` only those that no open transaction may change."""
        return offsets.fetch(self.context, request, require_stable=require_stable)

    def describe(self, group_id: str) -> DescribedGroup:
        """One group and its members."""
        return admin.describe(self.context, group_id)

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """All groups that pass the filters."""
        return admin.list_groups(self.context, states, types)

    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> list[GroupEffect]:
        """Topics, by name and id, are gone, and so are their offsets."""
        return offsets.topics_deleted(self.context, deleted)

    def due(self, event: Event, now: Moment) -> list[GroupEffect]:
        """A deadline has passed."""
        context = self.context
        match event:
            case SessionOver():
                return presence.session_over(context, event, now)
            case InitialDelayOver():
                return barrier.initial_delay_over(context, event, now)
            case JoinOver():
                return barrier.join_over(context, event, now)
            case SyncOver():
                return syncing.sync_over(context, event, now)
            case ExpiryDue():
                return expiry.expire(context, now)
            case OtherEvent():
                invariant(False, f"{event} is not of a classic group")
                return []

    def replay(self, record: GroupRecord) -> None:
        """Take over a committed record."""
        self.context.stored.replay(record)

    def written(self, write: Write[GroupRecord], now: Moment) -> list[GroupEffect]:
        """Go on after a write."""
        context = self.context
        match write.follow_up:
            case syncing.GenerationStored() as done:
                return syncing.generation_stored(context, done, now)
            case joining.StaticMemberReplaced() as done:
                return joining.static_member_stored(context, done, now)
            case barrier.GroupEmptied():
                group = context.groups.get(write.key)
                if group is not None:
                    context.forget_if_stored(group)
                return []
            case expiry.GroupDeleted():
                return admin.group_deleted(context, write.key)
        return []

    def not_written(self, write: Write[GroupRecord], error: ErrorCode, now: Moment) -> list[GroupEffect]:
        """Go on after a write that failed. An empty or deleted group needs nothing: its members are gone either way."""
        match write.follow_up:
            case syncing.GenerationStored() as done:
                return syncing.generation_not_stored(self.context, done, error, now)
            case joining.StaticMemberReplaced() as done:
                return joining.static_member_not_stored(self.context, done, error, now)
        return []

    def unload(self) -> list[GroupEffect]:
        """Send all who wait to the new coordinator."""
        effects: list[GroupEffect] = []
        for group in self.context.groups.values():
            for member in group.members.values():
                calls = (group.take_join(member), group.take_sync(member))
                effects += [refusal(call, ErrorCode.NOT_COORDINATOR) for call in calls if call is not None]
        return effects

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""
        return refuse(call, error)

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record)
