"""A world for groups: consumers that join, own, commit, pause, crash and leave, and a coordinator that moves.

Everything happens at virtual milliseconds out of one heap and one seed. The network delays and loses, writes are slow
or fail, and each new coordinator begins with what is in the log. `World.run` checks after each event what must never
break (`Violation` names it and the seed).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.base.randomness import SeededRandomness
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.loader import load, replaying
from appliance.coordinator.shard import CoordinatorShard, ShardLimits
from appliance.groups.config import GroupConfig
from appliance.groups.group import Group
from appliance.groups.machine import GroupMachine
from appliance.groups.records import decode_record
from appliance.groups.states import GroupState
from appliance.groups.stored import StoredGroups
from appliance.wire.messages.offset_commit import OffsetCommitRequest
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.coordinator_world import CoordinatorWorld, Violation
from tests.support.group_consumer import PARTITIONS, SESSION_MS, Consumer


@dataclass
class Faults:
    """How bad a day is."""

    lost: float = 0.03
    """Share of requests and answers that the network loses."""
    latency_max_ms: int = 60
    late: float = 0.08
    """Share of requests and answers that take seconds."""
    failed_writes: float = 0.12
    slow_writes: float = 0.05
    """Share of writes that take longer than their time-out."""
    moves_every_ms: int = 15_000
    mishaps_every_ms: int = 2_000
    """How often one of the consumers crashes, pauses or leaves."""


GOOD_DAY = Faults(0.0, 5, 0.0, 0.0, 0.0, 0, 0)


class World(CoordinatorWorld):
    """One coordinator, the log, the network, and the consumers of two groups."""

    request_timeout_ms = 20_000

    def __init__(
        self,
        seed: int,
        consumers_per_group: int = 4,
        faults: Faults | None = None,
        machine_class: type[GroupMachine] = GroupMachine,
    ) -> None:
        super().__init__(seed)
        self.faults = faults or Faults()
        self.machine_class = machine_class
        self.randomness = SeededRandomness(seed)
        self.config = GroupConfig(initial_rebalance_delay_ms=self.random.choice([0, 500, 3_000]))
        self.machine: GroupMachine | None = None
        self.next_offset = 0
        self.submitted: dict[tuple[str, int], set[int]] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.assigned: dict[tuple[str, int], dict[str, bytes]] = {}
        """By (group, generation): what each member, by instance id or else member id, was told that it owns."""
        self.consumers = [
            Consumer(
                self,
                f"{group_id}-{number}",
                group_id,
                f"i-{number}" if self.random.random() < 0.4 else None,
                self.random.choice([3, 5, 9]),
            )
            for group_id in ("g", "h")
            for number in range(consumers_per_group)
        ]
        for consumer in self.consumers:
            if consumer.version < 5:
                consumer.instance_id = None
            self.after(self.random.randrange(2_000), consumer.start_anew)
        self.start_coordinator()
        self.after(0, self.maybe_move)
        self.after(0, self.mishap)

    def note(self, text: str) -> None:
        self.notes.append(text)

    # The coordinator

    def start_coordinator(self) -> None:
        stored = StoredGroups()
        load(self.log, replaying(decode_record, stored))
        machine = self.machine = self.machine_class(self.config, self.randomness, stored)
        self.shard = CoordinatorShard(machine, ShardLimits())
        self.shard.decide(lambda: machine.loaded(self.now), self.now)
        self.pump()
        self.check_offsets()

    def maybe_move(self) -> None:
        if self.faults.moves_every_ms:
            self.after(self.random.randrange(self.faults.moves_every_ms), self.move)

    def move(self) -> None:
        """The coordinator's broker dies or loses its partition; what was under way is in the log, or is not."""
        self.maybe_move()
        if self.shard is None:
            return
        self.lose_coordinator()
        self.machine = None
        self.after(self.random.randrange(10, 3_000), self.start_coordinator)

    def fate_of_a_write(self) -> tuple[bool, int]:
        chance = self.random.random()
        if chance < self.faults.failed_writes:
            return False, self.random.randrange(20)
        if chance < self.faults.failed_writes + self.faults.slow_writes:
            return True, self.random.randrange(4_000, 9_000)
        return True, self.random.randrange(20)

    # The network

    def send(self, call: Call, done: Callable[[Any], None]) -> None:
        """A client's request: `done` gets the answer, or None when none came in time."""
        _, once = self.answered_in_time(done)
        if self.random.random() >= self.faults.lost:
            self.after(self.latency(), lambda: self.arrive(call, once))

    def arrive(self, call: Call, done: Callable[[Any], None]) -> None:
        if isinstance(call.request, OffsetCommitRequest):
            self.next_offset += 1
            partition = call.request.topics[0].partitions[0]
            partition.committed_offset = self.next_offset
            key = (call.request.group_id, partition.partition_index)
            self.submitted.setdefault(key, set()).add(self.next_offset)
        if self.shard is None:
            response = GroupMachine(self.config, self.randomness, StoredGroups()).refuse(
                call, ErrorCode.NOT_COORDINATOR
            )
            self.after(self.latency(), lambda: done(response))
            return
        self.waiting[call] = done
        self.shard.submit(call, self.now)
        self.pump()

    def latency(self) -> int:
        if self.random.random() < self.faults.late:
            return self.random.randrange(6_000)
        return self.random.randrange(1, self.faults.latency_max_ms)

    def deliver(self, answer: Answer) -> None:
        done = self.waiting.pop(answer.call, None)
        if done is None:
            raise Violation(f"seed {self.seed}: {answer.call.request!r} was answered twice")
        self.check_answer(answer)
        if self.random.random() >= self.faults.lost:
            self.after(self.latency(), lambda: done(answer.response))

    # Mishaps

    def mishap(self) -> None:
        if not self.faults.mishaps_every_ms:
            return
        self.after(self.random.randrange(self.faults.mishaps_every_ms), self.mishap)
        consumer = self.random.choice(self.consumers)
        if not consumer.is_alive:
            consumer.start_anew()
            return
        match self.random.randrange(5):
            case 0:
                consumer.crash()
            case 1:
                consumer.leave()
            case 2:
                consumer.paused_until_ms = self.now_ms + self.random.randrange(2 * SESSION_MS)
            case 3:
                # Restarted at once, as a container is.
                consumer.crash()
                consumer.start_anew()
            case _:
                consumer.begin()

    def heal(self) -> None:
        """From now on everything works, and everybody is back."""
        self.faults = GOOD_DAY
        for consumer in self.consumers:
            consumer.paused_until_ms = 0
            if not consumer.is_alive:
                consumer.start_anew()

    # What must never break

    def check_answer(self, answer: Answer) -> None:
        response: Any = answer.response
        request: Any = answer.call.request
        if isinstance(request, OffsetCommitRequest):
            if response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                partition = request.topics[0].partitions[0]
                key = (request.group_id, partition.partition_index)
                self.acknowledged[key] = max(self.acknowledged.get(key, 0), partition.committed_offset)
        elif isinstance(request, SyncGroupRequest) and response.error_code == ErrorCode.NONE:
            self.check_assignment(request, response.assignment)

    def check_assignment(self, request: SyncGroupRequest, assignment: bytes) -> None:
        where = f"seed {self.seed} at {self.now_ms}: generation {request.generation_id} of {request.group_id}"
        who = request.group_instance_id or request.member_id
        told = self.assigned.setdefault((request.group_id, request.generation_id), {})
        if told.setdefault(who, assignment) != assignment:
            raise Violation(f"{where}: {who} was told two assignments")
        owned = [partition for content in told.values() for partition in json.loads(content or b"[]")]
        if len(owned) != len(set(owned)):
            raise Violation(f"{where}: a partition has two owners: {told}")
        stored = self.machine.stored.generations.get(request.group_id) if self.machine is not None else None
        if stored is None or stored.generation_id != request.generation_id:
            raise Violation(f"{where}: it was given out, but is not in the log")
        of_member = {member.member_id: member.assignment for member in stored.members}
        if of_member.get(request.member_id) != assignment:
            raise Violation(f"{where}: {who} was told what is not in the log")

    def check(self) -> None:
        machine, shard = self.machine, self.shard
        if machine is None or shard is None:
            return
        for group in machine.groups.values():
            self.check_counts(group)
            if shard.idle and group.state is GroupState.STABLE:
                self.check_stable(group, machine)

    def check_counts(self, group: Group) -> None:
        waiting = [member for member in group.members.values() if member.awaiting_join is not None]
        static = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id}
        if group.awaiting_join_count != len(waiting) or group.static_members != static:
            raise Violation(f"seed {self.seed}: group {group.group_id} has lost count of its members")
        if group.members and group.leader_id not in group.members:
            raise Violation(f"seed {self.seed}: group {group.group_id} is led by nobody")

    def check_stable(self, group: Group, machine: GroupMachine) -> None:
        """What a stable group is, is what the next coordinator will find in the log."""
        stored = machine.stored.generations.get(group.group_id)
        live = {member.member_id: member.assignment for member in group.members.values()}
        if stored is None or stored.generation_id != group.generation_id:
            raise Violation(f"seed {self.seed} at {self.now_ms}: stable generation is not in the log: {stored}")
        found = {member.member_id: member.assignment for member in stored.members}
        if (found, stored.leader_id, stored.protocol_name) != (live, group.leader_id, group.protocol_name):
            raise Violation(f"seed {self.seed} at {self.now_ms}: {group.group_id} is {live}, but the log says {found}")

    def check_offsets(self) -> None:
        """No acknowledged commit is lost, and none is made up; the log replayed is the state that lives."""
        if self.machine is None:
            return
        replayed = StoredGroups()
        load(self.log, replaying(decode_record, replayed))
        if replayed != self.machine.stored:
            raise Violation(f"seed {self.seed} at {self.now_ms}: the log replayed is not the state")
        for key, acknowledged in self.acknowledged.items():
            offset = replayed.offset(key[0], "t", key[1])
            if offset is None or offset.offset < acknowledged or offset.offset not in self.submitted[key]:
                raise Violation(f"seed {self.seed} at {self.now_ms}: {key} was {acknowledged} and is {offset}")

    def check_settled(self) -> None:
        """All live, agree on one generation, and own every partition once."""
        machine = self.machine
        assert machine is not None
        for group_id in ("g", "h"):
            members = [consumer for consumer in self.consumers if consumer.group_id == group_id]
            group = machine.groups[group_id]
            if group.state is not GroupState.STABLE or not all(member.is_stable for member in members):
                raise Violation(f"seed {self.seed}: {group_id} is {group.state.value} on a good day")
            if {member.generation_id for member in members} != {group.generation_id}:
                raise Violation(f"seed {self.seed}: members of {group_id} are of several generations")
            if sorted(partition for member in members for partition in member.owned) != list(range(PARTITIONS)):
                raise Violation(f"seed {self.seed}: not every partition of {group_id} has one owner")
