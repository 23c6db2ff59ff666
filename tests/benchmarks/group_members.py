"""Members of one group, each on a connection of its own, all in one process: they do what clients do, and no more.

A rebalance begins with one member that comes or goes. The others hear of it as clients do, by their heartbeats; those
come at once here, and not every three or five seconds, so that what is measured is the server's part.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.wire.codec import decode, decode_response, encode, encode_request
from appliance.wire.frames import FrameReader
from appliance.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from appliance.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from appliance.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

TOPIC = "partitions"
DEADLINE_S = 120.0
BEAT_AGAIN_S = 0.02
"""A member that has heard nothing new asks again after this time."""
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 300_000
COME_AGAIN = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
RESPONSES = {
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
    HeartbeatRequest: HeartbeatResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
}
_CONTENT = struct.Struct(">h")
_SUBSCRIPTION_VERSION, _ASSIGNMENT_VERSION = 3, 0


class Swarm:
    """Members, the sockets that they wait at, and the topic that they share."""

    def __init__(self, address: tuple[str, int], group_id: str, partitions: int, topic_id: uuid.UUID) -> None:
        self.address, self.group_id, self.partitions, self.topic_id = address, group_id, partitions, topic_id
        self.members: list[Member] = []
        self.calls = 0
        self._selector = selectors.DefaultSelector()

    def add(self, member: Member) -> None:
        self.members.append(member)
        self._selector.register(member.socket, selectors.EVENT_READ, member)

    def remove(self, member: Member) -> None:
        self.members.remove(member)
        self._selector.unregister(member.socket)
        member.socket.close()

    def settle(self) -> float:
        """Seconds until every member has what it is to have; the caller has begun something just now."""
        began = time.monotonic()
        while not self.is_settled():
            now = time.monotonic()
            if now - began > DEADLINE_S:
                raise TimeoutError(f"the group does not settle: {[str(member) for member in self.members[:5]]}")
            for member in self.members:
                if not member.waits and now >= member.beats_at:
                    member.beat()
            for key, _ in self._selector.select(BEAT_AGAIN_S / 4):
                key.data.receive()
        return time.monotonic() - began

    def wait_for(self, member: Member) -> None:
        """The answer to what the member has asked."""
        deadline = time.monotonic() + DEADLINE_S
        while member.waits:
            if time.monotonic() > deadline:
                raise TimeoutError("no answer")
            for key, _ in self._selector.select(0.1):
                key.data.receive()

    def is_settled(self) -> bool:
        count, epochs = 0, set()
        for member in self.members:
            if not member.is_stable:
                return False
            epochs.add(member.epoch)
            count += len(member.owned)
        return len(epochs) <= 1 and count == self.partitions

    def close(self) -> None:
        for member in list(self.members):
            with contextlib.suppress(OSError):
                self.remove(member)
        self._selector.close()


class Member(ABC):
    """One client. `waits` for an answer, or may send; `is_stable` while it has no step of its own left to do."""

    def __init__(self, swarm: Swarm) -> None:
        self.swarm = swarm
        self.member_id = ""
        self.epoch = -1
        self.owned: set[int] = set()
        self.is_stable = self.waits = False
        self.beats_at = 0.0
        self._frames = FrameReader(1 << 26)
        self._expected: tuple[Any, int] | None = None
        self.socket = socket.create_connection(swarm.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __str__(self) -> str:
        return f"{self.member_id} epoch {self.epoch}: {len(self.owned)} owned, stable {self.is_stable}"

    def send(self, request: Any, version: int) -> None:
        assert not self.waits, "one request at a time"
        self.waits, self._expected = True, (RESPONSES[type(request)], version)
        self.swarm.calls += 1
        self.socket.sendall(encode_request(request, version, 0, "bench"))

    def receive(self) -> None:
        count = self.socket.recv_into(self._frames.free_space())
        if not count:
            raise ConnectionError("the server has hung up")
        for frame in self._frames.received(count):
            assert self._expected is not None
            kind, version = self._expected
            self.waits = False
            self.answered(decode_response(kind, frame, version)[1])

    @abstractmethod
    def answered(self, response: Any) -> None: ...

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def beat(self) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    def prepare(self) -> None:
        """What a new member does before the group hears of it."""
        return

    def _again(self, after_s: float = BEAT_AGAIN_S) -> None:
        self.beats_at = time.monotonic() + after_s


class ClassicMember(Member):
    """Joins, syncs, and as the leader assigns: eager, or step by step (KIP-429)."""

    protocol = "range"
    _step = ""

    def prepare(self) -> None:
        """Its id comes with a first refusal (KIP-394)."""
        while not self.member_id:
            self._join()
            self.swarm.wait_for(self)

    def join(self) -> None:
        self._join()

    def _join(self) -> None:
        self.is_stable, self._step = False, "join"
        subscription = ConsumerProtocolSubscription(
            topics=[TOPIC], owned_partitions=_rows(self.claimed()), generation_id=self.epoch
        )
        request = JoinGroupRequest(
            group_id=self.swarm.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=self.protocol, metadata=_packed(subscription, _SUBSCRIPTION_VERSION))
            ],
        )
        self.send(request, 9)

    def claimed(self) -> Iterable[int]:
        return ()

    def beat(self) -> None:
        if not self.is_stable:
            self._join()
            return
        self._step = "beat"
        who = {"group_id": self.swarm.group_id, "member_id": self.member_id}
        self.send(HeartbeatRequest(generation_id=self.epoch, **who), 4)

    def leave(self) -> None:
        self._step = "leave"
        gone = [MemberIdentity(member_id=self.member_id)]
        self.send(LeaveGroupRequest(group_id=self.swarm.group_id, members=gone), 5)

    def answered(self, response: Any) -> None:
        error = response.error_code
        if self._step == "leave":
            return
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error in COME_AGAIN:
            self._again()
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        elif error != ErrorCode.NONE:
            raise RuntimeError(f"{self._step}: {ErrorCode(error).name}")
        elif self._step == "beat":
            self._again()
        elif self._step == "join":
            self._sync(response)
        else:
            self._synced(response.assignment)

    def _sync(self, response: Any) -> None:
        self._step, self.epoch = "sync", response.generation_id
        assignments = []
        if response.leader == self.member_id:
            owned = {each.member_id: _owned_in(each.metadata) for each in response.members}
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id,
                    assignment=_packed(ConsumerProtocolAssignment(assigned_partitions=_rows(mine)), 0),
                )
                for member_id, mine in self.assign(owned).items()
            ]
        request = SyncGroupRequest(
            group_id=self.swarm.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments,
        )
        self.send(request, 5)

    def assign(self, owned: dict[str, set[int]]) -> dict[str, Iterable[int]]:
        """Ranges, in the order of ids."""
        return dict(zip(sorted(owned), ranges(self.swarm.partitions, len(owned)), strict=True))

    def _synced(self, assignment: Any) -> None:
        self.owned = _assigned_in(assignment)
        self.is_stable = True
        self._again(0)


class CooperativeMember(ClassicMember):
    """Keeps what it owns through a rebalance; what is taken from it is given to others by the next one."""

    protocol = "cooperative-sticky"

    def claimed(self) -> Iterable[int]:
        return sorted(self.owned)

    def assign(self, owned: dict[str, set[int]]) -> dict[str, Iterable[int]]:
        target = sticky(owned, self.swarm.partitions)
        held = set().union(*owned.values())
        return {member: sorted((mine & owned[member]) | (mine - held)) for member, mine in target.items()}

    def _synced(self, assignment: Any) -> None:
        before = self.owned
        super()._synced(assignment)
        if before - self.owned:
            self._join()


class ConsumerMember(Member):
    """Of the protocol of KIP-848: says what it owns, and is told what it is to own."""

    def __init__(self, swarm: Swarm) -> None:
        super().__init__(swarm)
        self.member_id = uuid.uuid4().hex
        self.epoch = 0
        self._told = False
        self._leaves = False

    def join(self) -> None:
        self._heartbeat(
            member_epoch=0,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )

    def beat(self) -> None:
        if self.epoch == 0:
            self.join()
            return
        news = {} if self._told else {"topic_partitions": self._rows()}
        self._heartbeat(member_epoch=self.epoch, **news)

    def leave(self) -> None:
        self._leaves = True
        self._heartbeat(member_epoch=-1)

    def _heartbeat(self, **said: Any) -> None:
        who = {"group_id": self.swarm.group_id, "member_id": self.member_id}
        self.send(ConsumerGroupHeartbeatRequest(**who, **said), 1)

    def _rows(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=self.swarm.topic_id, partitions=sorted(self.owned))] if self.owned else []

    def answered(self, response: Any) -> None:
        if self._leaves:
            return
        if response.error_code in COME_AGAIN:
            self._again()
            return
        if response.error_code != ErrorCode.NONE:
            raise RuntimeError(f"{ErrorCode(response.error_code).name}: {response.error_message}")
        is_told = response.assignment is None
        if is_told:
            self._again()
        else:
            self.owned = {number for row in response.assignment.topic_partitions for number in row.partitions}
            self._again(0)
        self._told, self.epoch = is_told, response.member_epoch
        self.is_stable = is_told


def ranges(partitions: int, members: int) -> Iterator[range]:
    share, more = divmod(partitions, members)
    begin = 0
    for number in range(members):
        end = begin + share + (number < more)
        yield range(begin, end)
        begin = end


def sticky(owned: dict[str, set[int]], partitions: int) -> dict[str, set[int]]:
    """Even shares of which everybody keeps as much as it may."""
    share, more = divmod(partitions, len(owned))
    target: dict[str, set[int]] = {}
    free = set(range(partitions)).difference(*owned.values())
    for number, (member, mine) in enumerate(sorted(owned.items(), key=lambda each: (-len(each[1]), each[0]))):
        kept = sorted(mine)[: share + (number < more)]
        target[member] = set(kept)
        free.update(mine.difference(kept))
    left = sorted(free)
    for number, member in enumerate(target):
        while len(target[member]) < share + (number < more):
            target[member].add(left.pop())
    return target


def _rows(partitions: Iterable[int]) -> list[TopicPartition]:
    numbers = list(partitions)
    return [TopicPartition(topic=TOPIC, partitions=numbers)] if numbers else []


def _packed(content: Any, version: int) -> bytes:
    return _CONTENT.pack(version) + encode(content, version)


def _numbers(rows: Iterable[TopicPartition]) -> set[int]:
    return {number for row in rows for number in row.partitions}


def _owned_in(metadata: Any) -> set[int]:
    return _numbers(decode(ConsumerProtocolSubscription, bytes(metadata)[2:], _SUBSCRIPTION_VERSION).owned_partitions)


def _assigned_in(assignment: Any) -> set[int]:
    if not assignment:
        return set()
    return _numbers(decode(ConsumerProtocolAssignment, bytes(assignment)[2:], _ASSIGNMENT_VERSION).assigned_partitions)
