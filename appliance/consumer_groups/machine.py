"""All groups of one partition of `__consumer_offsets`, of both protocols: requests, time and metadata in; records,
answers, deadlines and work for helper threads out.

A consumer group is decided upon only when nothing that was decided before is still on its way into the log (see
`must_wait`), so a decision needs to know nothing but what is committed; for what members ask all the time see
`foresight`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from appliance.base.errors import ErrorCode, invariant
from appliance.base.randomness import Randomness
from appliance.consumer_groups import classic_members, describing, leaving, migration, offsets
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.context import (
    AnyEffect,
    AssignmentDue,
    AssignmentJob,
    ConsumerContext,
    DowngradeDue,
    Job,
    JobApplied,
    MemberSessionOver,
    RegexJob,
    RejoinOver,
    ResultDue,
    RevocationOver,
    told,
)
from appliance.consumer_groups.foresight import GroupForesight
from appliance.consumer_groups.heartbeat import JOIN_EPOCH, check, heartbeat, supported
from appliance.consumer_groups.records import encode_record
from appliance.consumer_groups.regexes import regexes_resolved
from appliance.consumer_groups.stored import AnyRecord, GroupEpochRecord, MemberRecord, StoredAllGroups
from appliance.consumer_groups.targets import assign_due, assignment_made
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.groups import epoch_admin
from appliance.groups import offsets as classic_offsets
from appliance.groups.config import GroupConfig
from appliance.groups.context import DeadlineKey, Event, OtherEvent
from appliance.groups.epoch_context import World
from appliance.groups.machine import GroupMachine
from appliance.groups.stored import GenerationRecord, GroupRecord
from appliance.groups.subscription import CONSUMER_PROTOCOL_TYPE
from appliance.wire.messages import consumer_group_describe, describe_groups
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
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

JOBS_MAX = 1_000
"""Work for helper threads that waits to be taken; more is asked for again later."""


class AllGroupsMachine:
    """Decides for `appliance.coordinator.shard.CoordinatorShard`."""

    def __init__(
        self,
        config: GroupConfig,
        consumer_config: ConsumerGroupConfig,
        randomness: Randomness,
        stored: StoredAllGroups,
        world: Callable[[], World],
    ) -> None:
        self.classic = GroupMachine(config, randomness, stored)
        self.classic.context.others = stored.consumer_groups
        self._context = ConsumerContext(self.deadlines, world, consumer_config, self.classic.context, stored)
        self._assignors = supported(consumer_config.assignors)
        self.foresight = GroupForesight(self._context)

    @property
    def stored(self) -> StoredAllGroups:
        """What the log says."""
        return self._context.stored

    @property
    def deadlines(self) -> Deadlines[DeadlineKey, Event]:
        return self.classic.deadlines

    def loaded(self, now: Moment) -> list[AnyEffect]:
        """The stored state is complete: members have one session timeout to be heard."""
        self._expect_all(now)
        return list(self.classic.loaded(now))

    def time_anew(self, now: Moment) -> list[AnyEffect]:
        """Nobody could reach us for a while, which was not the members' fault: they have their full time again."""
        self._expect_all(now)
        return list(self.classic.time_anew(now))

    def _expect_all(self, now: Moment) -> None:
        for group in self._context.stored.consumer_groups.values():
            self._context.expect_anew(group, now)

    # Requests

    def must_wait(self, call: Call) -> str | None:
        """The group whose writes have to be finished before this can be decided; None: it need not wait."""
        request = call.request
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            return request.group_id
        group_id: str | None = getattr(request, "group_id", None)
        context = self._context
        return group_id if group_id in context.stored.consumer_groups or group_id in context.upgrading else None

    def handle(self, call: Call, now: Moment) -> list[AnyEffect]:
        """Decide a request that names one group."""
        context, request = self._context, call.request
        if isinstance(request, WritableTxnMarker):
            return list(self.classic.handle(call, now))
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            return self._heartbeat(call, request, now)
        (group_id,) = request.groups_names if isinstance(request, DeleteGroupsRequest) else (request.group_id,)  # type: ignore[attr-defined]
        group = context.find(group_id)
        if group is None and group_id in context.upgrading:
            # Nothing is on its way any more: what had timed out has failed.
            migration.upgrade_failed(context, group_id, now)
        if group is None or (group.is_empty and group_id in context.classic.groups):
            return self.classic.handle(call, now)  # type: ignore[return-value]
        match request:
            case JoinGroupRequest():
                if group.is_empty:
                    end: AnyEffect = Write(group_id, tuple(group.tombstones()))
                    return [end, *self.classic.handle(call, now)]
                return classic_members.join(context, group, call, request, now)
            case SyncGroupRequest():
                return classic_members.sync(context, group, call, request, now)
            case HeartbeatRequest():
                return classic_members.heartbeat(context, group, call, request, now)
            case LeaveGroupRequest():
                return classic_members.leave(context, group, call, request, now)
            case OffsetCommitRequest():
                return offsets.commit(context, group, call, request, now)
            case TxnOffsetCommitRequest():
                return offsets.commit_in_transaction(context, group, call, request, now)
            case OffsetDeleteRequest():
                return list(classic_offsets.delete_unused(context.classic, call, request, group.may_read))
            case DeleteGroupsRequest():
                return epoch_admin.delete(context.classic, group, call)
        invariant(False, f"{type(request).__name__} is no request to a group")
        return []

    def _heartbeat(self, call: Call, request: ConsumerGroupHeartbeatRequest, now: Moment) -> list[AnyEffect]:
        error, message = check(request, call.version, self._assignors)
        if error is not ErrorCode.NONE:
            return [told(call, error, message)]
        if request.member_epoch < JOIN_EPOCH:
            return leaving.leave(self._context, call, request, now)
        return heartbeat(self._context, call, request, now)

    # Looking

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group; with `require_stable` only those that no open transaction may change."""
        group = self._context.committed(request.group_id)
        error = offsets.may_fetch(group, request) if group is not None else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return self.classic.fetch_offsets(request, require_stable=require_stable)

    def describe(self, group_id: str) -> describe_groups.DescribedGroup:
        """One classic group and its members."""
        context = self._context
        if group_id in context.stored.consumer_groups and group_id not in context.classic.groups:
            return epoch_admin.describe_as_classic(group_id)
        return self.classic.describe(group_id)

    def describe_consumer_group(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """One consumer group and its members."""
        return describing.describe(self._context, group_id)

    def list_groups(self, states: list[str], types: list[str]) -> list[ListedGroup]:
        """All groups that pass the filters."""
        classic = self._context.classic.groups
        groups = [each for each in self._context.stored.consumer_groups.values() if each.group_id not in classic]
        listed = self.classic.list_groups(states, types)
        return listed + epoch_admin.list_groups(groups, CONSUMER_PROTOCOL_TYPE, states, types)

    # What happens

    def topics_deleted(self, deleted: list[tuple[str, uuid.UUID]]) -> list[AnyEffect]:
        """Topics, by name and id, are gone, and so are their offsets."""
        return list(self.classic.topics_deleted(deleted))

    def take_jobs(self) -> list[Job]:
        """Work for helper threads; each result comes back by `job_done`."""
        if not self._context.jobs:
            return []
        jobs, self._context.jobs[:] = self._context.jobs[:JOBS_MAX], []
        return jobs

    def job_done(self, job: Job, result: object, now: Moment) -> list[AnyEffect]:
        """A helper thread has finished; an exception in place of a result means that it could not."""
        context = self._context
        if isinstance(result, Exception):
            context.job_over(job)
            return []
        context.memory(job.group_id).results[type(job)] = result
        context.apply(job, now)
        return []

    def due(self, event: Event, now: Moment) -> list[AnyEffect]:
        """A deadline has passed."""
        context = self._context
        match event:
            case MemberSessionOver():
                return leaving.session_over(context, event, now)
            case RevocationOver():
                return leaving.revocation_over(context, event, now)
            case RejoinOver():
                return leaving.rejoin_over(context, event, now)
            case DowngradeDue(group_id):
                return migration.downgraded(context, group_id, now)
            case AssignmentDue(group_id):
                return assign_due(context, group_id, now)
            case ResultDue(_, RegexJob() as job):
                return regexes_resolved(context, job, now)
            case ResultDue(_, AssignmentJob() as job):
                return assignment_made(context, job, now)
            case OtherEvent():
                invariant(False, f"{event} is no event of ours")
        return list(self.classic.due(event, now))

    def replay(self, record: AnyRecord) -> None:
        """Take over a committed record."""
        context = self._context
        match record:
            case MemberRecord(group_id, member_id, None):
                ahead = context.ahead.get(group_id)
                if ahead is None or member_id not in ahead.members:
                    context.expect_nothing(group_id, member_id)
            case GroupEpochRecord(group_id, None):
                context.memories.pop(group_id, None)
            case GroupEpochRecord(group_id):
                context.upgrading.pop(group_id, None)
                classic = context.classic.groups.get(group_id)
                if classic is not None:
                    # Its upgrade had been given up as timed out.
                    migration.forget_classic(context, classic)
        context.stored.replay(record)
        if isinstance(record, GenerationRecord) and context.downgrading:
            migration.generation_replayed(context, record.group_id, record.generation)

    def written(self, write: Write[AnyRecord], now: Moment) -> list[AnyEffect]:
        """Go on after a write."""
        match write.follow_up:
            case migration.Downgraded(group_id):
                return migration.downgraded(self._context, group_id, now)
            case migration.Upgraded():
                return []
            case JobApplied(job):
                self._context.job_over(job)
                return []
        return list(self.classic.written(_classic(write), now))

    def not_written(self, write: Write[AnyRecord], error: ErrorCode, now: Moment) -> list[AnyEffect]:
        """Go on after a write that failed."""
        match write.follow_up:
            case migration.Upgraded(group_id):
                if error is not ErrorCode.REQUEST_TIMED_OUT:
                    migration.upgrade_failed(self._context, group_id, now)
                return []
            case JobApplied(job):
                self._context.job_over(job)
                return []
        return list(self.classic.not_written(_classic(write), error, now))

    def unload(self) -> list[AnyEffect]:
        """Send all who wait to the new coordinator."""
        return list(self.classic.unload())

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""
        return self.classic.refuse(call, error)

    def encode(self, record: AnyRecord) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record)


def _classic(write: Write[AnyRecord]) -> Write[GroupRecord]:
    """A write that the classic machine had decided; it looks at the follow-up only."""
    return write  # type: ignore[return-value]
