"""A coordinator of groups on a bench: explicit time, a log in a list, and answers to look at."""

from __future__ import annotations

from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.coordinator.calls import Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import Batch, CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.groups.machine import GroupMachine
from appliance.groups.records import decode_record
from appliance.groups.stored import StoredGroups
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from appliance.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from appliance.wire.schema import Struct

WALL_START_MS = 1_700_000_000_000
RANGE = (("range", b"meta"),)


class GroupBench:
    """One partition's coordinator. Writes are committed at once unless `hold` is set."""

    def __init__(self, config: GroupConfig | None = None, seed: int = 0) -> None:
        self.config = config or GroupConfig()
        self.limits = ShardLimits()
        self.randomness = SeededRandomness(seed)
        self.now_ms = 0
        self.log: list[bytes] = []
        self.held: list[Batch[Any]] = []
        self.hold = False
        self.asked: list[Call] = []
        self.answers: dict[Call, Struct] = {}
        self.shard: CoordinatorShard[Any]
        self.machine: GroupMachine
        self._start()

    @property
    def now(self) -> Moment:
        return Moment(WALL_START_MS + self.now_ms, self.now_ms)

    def _start(self) -> None:
        stored = StoredGroups()
        load(self.log, replaying(decode_record, stored))
        self.machine = GroupMachine(self.config, self.randomness, stored)
        self.shard = CoordinatorShard(self.machine, self.limits)
        self.shard.decide(lambda: self.machine.loaded(self.now), self.now)
        self.pump()

    def fail_over(self) -> None:
        """Another broker takes over with what is in the log."""
        self.shard.unload()
        self.pump()
        self.held.clear()
        self._start()

    def pump(self) -> None:
        while True:
            while (batch := self.shard.take_batch(self.now)) is not None:
                self.held.append(batch)
            if self.hold or not self.held:
                break
            self.commit_next()
        for answer in self.shard.take_answers():
            assert answer.call not in self.answers, "answered twice"
            self.answers[answer.call] = answer.response

    def commit_next(self) -> None:
        batch = self.held.pop(0)
        self.log.append(batch.payload)
        self.shard.batch_done(batch, ErrorCode.NONE, self.now)

    def release(self) -> None:
        """Commit all that was held."""
        self.hold = False
        self.pump()

    def fail_held(self, error: ErrorCode) -> None:
        """None of what is held comes into the log."""
        held, self.held = self.held, []
        for batch in held:
            self.shard.batch_done(batch, error, self.now)
        self.pump()

    def advance(self, ms: int) -> None:
        """Let time pass, doing what becomes due on the way."""
        end_ms = self.now_ms + ms
        while (due_ms := self.shard.next_due_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.shard.tick(self.now)
            self.pump()
        self.now_ms = end_ms

    def submit(
        self,
        request: Struct,
        version: int,
        client_id: str = "client",
        *,
        after_writes_of: str | None = None,
    ) -> Call:
        call = Call(request, version, client_id, "/127.0.0.1")
        self.asked.append(call)
        self.shard.submit(call, self.now, after_writes_of=after_writes_of)
        self.pump()
        return call

    def answer(self, call: Call) -> Any:
        return self.answers[call]

    def is_waiting(self, call: Call) -> bool:
        return call not in self.answers

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
        client_id: str = "client",
    ) -> Call:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        return self.submit(request, version, client_id)

    def join_new(self, **options: Any) -> Call:
        """Join as a new dynamic member does: ask for an id, come back with it."""
        required = self.answer(self.join(**options))
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(required.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_name: str = "range",
        protocol_type: str = "consumer",
        version: int = 5,
    ) -> Call:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type if version >= 5 else None,
            protocol_name=protocol_name if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=content)
                for each, content in (assignments or {}).items()
            ],
        )
        return self.submit(request, version)

    def heartbeat(
        self, member_id: str, generation_id: int, *, group_id: str = "g", instance_id: str | None = None
    ) -> int:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        error: int = self.answer(self.submit(request, 4)).error_code
        return error

    def leave(self, *members: tuple[str, str | None], group_id: str = "g") -> Call:
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members
        ]
        return self.submit(LeaveGroupRequest(group_id=group_id, members=identities), 5)

    def commit(
        self,
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = -1,
        group_id: str = "g",
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        instance_id: str | None = None,
        version: int = 9,
        retention_time_ms: int = -1,
        **options: Any,
    ) -> Call:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_time_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                    **options,
                )
            ],
        )
        return self.submit(request, version)

    def commit_error(self, offset: int, **options: Any) -> int:
        error: int = self.answer(self.commit(offset, **options)).topics[0].partitions[0].error_code
        return error

    def fetch(self, topic: str = "t", partition: int = 0, *, group_id: str = "g", **options: Any) -> Any:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition], **options)]
        response = self.machine.fetch_offsets(OffsetFetchRequestGroup(group_id=group_id, topics=topics))
        return response.topics[0].partitions[0]

    def offset(self, topic: str = "t", partition: int = 0, *, group_id: str = "g") -> int:
        offset: int = self.fetch(topic, partition, group_id=group_id).committed_offset
        return offset

    def delete_group(self, group_id: str = "g") -> Call:
        return self.submit(DeleteGroupsRequest(groups_names=[group_id]), 2, after_writes_of=group_id)

    def delete_offset(self, topic: str = "t", partition: int = 0, *, group_id: str = "g") -> Call:
        topics = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
        ]
        return self.submit(OffsetDeleteRequest(group_id=group_id, topics=topics), 0, after_writes_of=group_id)

    # Whole groups

    def stable_group(self, size: int = 2, *, group_id: str = "g", **options: Any) -> list[JoinGroupResponse]:
        """A group of dynamic members with their assignments; returns their answers, the leader's first."""
        calls = [self.join_new(group_id=group_id, **options) for _ in range(size)]
        self.advance(2 * self.config.initial_rebalance_delay_ms)
        answers = [self.answer(call) for call in calls]
        answers.sort(key=lambda answer: answer.member_id != answer.leader)
        self.sync_all(answers, group_id=group_id)
        return answers

    def sync_all(self, joined: list[JoinGroupResponse], *, group_id: str = "g") -> list[Any]:
        """All members sync, the leader last; each is assigned its own id."""
        assignments = {answer.member_id: answer.member_id.encode() for answer in joined}
        calls = []
        for answer in sorted(joined, key=lambda answer: answer.member_id == answer.leader):
            mine = assignments if answer.member_id == answer.leader else None
            calls.append(
                self.sync(
                    answer.member_id,
                    answer.generation_id,
                    mine,
                    group_id=group_id,
                    protocol_name=answer.protocol_name or "",
                    protocol_type=answer.protocol_type or "",
                )
            )
        return [self.answers.get(call) for call in calls]

    def state(self, group_id: str = "g") -> str:
        return self.machine.describe(group_id).group_state
