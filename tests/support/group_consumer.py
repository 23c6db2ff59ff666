"""A consumer of the classic protocol in the world of groups: what every client does, and mishaps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from appliance.wire.schema import Struct
from tests.support.coordinator_world import Violation

if TYPE_CHECKING:
    from tests.support.group_world import World

PARTITIONS = 7
HEARTBEAT_MS = 2_000
SESSION_MS = 6_000
REBALANCE_MS = 8_000
TRY_AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass(eq=False)
class Consumer:
    """A client of the classic protocol, eager: what it owns ends when it joins again."""

    world: World
    name: str
    group_id: str
    instance_id: str | None
    version: int
    member_id: str = ""
    generation_id: int = -1
    owned: tuple[int, ...] = ()
    is_stable: bool = False
    is_alive: bool = True
    paused_until_ms: int = 0
    life: int = 0
    """Rises whenever it begins something new; answers of an older life are ignored."""

    def begin(self) -> None:
        self.life += 1
        self.is_stable, self.owned = False, ()
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.name.encode())],
        )
        self.send(request, self.joined)

    def send(self, request: Struct, done: Callable[[Any], None]) -> None:
        life = self.life

        def answered(response: Any) -> None:
            if life == self.life and self.is_alive:
                done(response)

        self.world.send(Call(request, self.version_of(request), self.name, "/sim"), answered)

    def version_of(self, request: Struct) -> int:
        return self.version if isinstance(request, JoinGroupRequest) else 4

    def again(self, delay_ms: int = 100) -> None:
        life = self.life
        self.world.after(delay_ms, lambda: self.begin() if life == self.life and self.is_alive else None)

    def failed(self, error: int) -> None:
        """What every client does with an error of its group."""
        if error == ErrorCode.FENCED_INSTANCE_ID:
            # By its successor, or by a late JoinGroup of its predecessor. Whoever runs it starts it again.
            self.world.note("fenced")
            self.crash()
            self.world.after(1_000, lambda: None if self.is_alive else self.start_anew())
            return
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif error not in TRY_AGAIN and error != ErrorCode.ILLEGAL_GENERATION:
            raise Violation(f"seed {self.world.seed}: {self.name} was told {ErrorCode(error).name}")
        self.generation_id = -1
        self.again()

    def joined(self, response: Any) -> None:
        if response is None:
            self.again()
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.again(0)
        elif response.error_code != ErrorCode.NONE:
            self.failed(response.error_code)
        else:
            self.member_id, self.generation_id = response.member_id, response.generation_id
            assignments: list[SyncGroupRequestAssignment] = []
            if response.leader == self.member_id and not response.skip_assignment:
                assignments = self.assign([member.member_id for member in response.members])
            request = SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                assignments=assignments,
            )
            self.send(request, self.synced)

    def assign(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        shuffled = self.world.random.sample(member_ids, len(member_ids))
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=json.dumps(list(range(index, PARTITIONS, len(shuffled)))).encode()
            )
            for index, member_id in enumerate(shuffled)
        ]

    def synced(self, response: Any) -> None:
        if response is None:
            self.again()
        elif response.error_code != ErrorCode.NONE:
            self.failed(response.error_code)
        else:
            self.owned = tuple(json.loads(response.assignment or b"[]"))
            self.is_stable = True
            self.world.after(HEARTBEAT_MS, partial(self.beat, self.life))

    def beat(self, life: int) -> None:
        if life != self.life or not self.is_alive:
            return
        if self.world.now_ms < self.paused_until_ms:
            self.world.after(self.paused_until_ms - self.world.now_ms, partial(self.beat, life))
            return
        if self.owned and self.world.random.random() < 0.8:
            self.commit(self.world.random.choice(self.owned))
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self.send(request, self.beaten)
        self.world.after(HEARTBEAT_MS, partial(self.beat, life))

    def beaten(self, response: Any) -> None:
        if response is None or response.error_code == ErrorCode.NONE:
            return
        if response.error_code in TRY_AGAIN and response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            return
        self.is_stable = False
        self.failed(response.error_code)

    def commit(self, partition: int) -> None:
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[
                OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=partition)])
            ],
        )
        self.send(request, lambda response: None)

    def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        self.send(LeaveGroupRequest(group_id=self.group_id, members=[identity]), lambda response: None)
        self.crash()

    def crash(self) -> None:
        self.life += 1
        self.is_alive = self.is_stable = False
        self.owned = ()

    def start_anew(self) -> None:
        """As a new process: it knows nothing but its instance id."""
        self.is_alive, self.member_id, self.generation_id, self.paused_until_ms = True, "", -1, 0
        self.begin()
