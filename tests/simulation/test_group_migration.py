"""Members of both protocols in one group, in any order, while writes fail or wait and the coordinator moves.

Whatever happens, the group is of one kind, the next coordinator finds what this one had, nobody is left without an
answer, and no partition of a consumer group has two owners.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.consumer_group_bench import ConsumerGroupBench
from tests.support.seeds import seeds

STEPS = 150
PARTITIONS = 6


def assignment(numbers: list[int]) -> bytes:
    rows = [TopicPartition(topic="t", partitions=numbers)] if numbers else []
    return struct.pack(">h", 1) + encode(ConsumerProtocolAssignment(assigned_partitions=rows), 1)


class Classic:
    """A classic consumer that does the next thing it has to do."""

    def __init__(self, days: Days, instance_id: str | None) -> None:
        self.days, self.instance_id = days, instance_id
        self.member_id, self.generation, self.owned = "", -1, list[int]()
        self.asked: Call | None = None
        self.needs = "join"

    def turn(self) -> None:
        bench = self.days.bench
        if self.asked is not None:
            answer = bench.answers.get(self.asked)
            if answer is None:
                return
            self._answered(self.asked.request, answer)
            self.asked = None
            return
        if self.needs == "join":
            rows = [TopicPartition(topic="t", partitions=self.owned)]
            said = ConsumerProtocolSubscription(topics=["t"], owned_partitions=rows)
            metadata = struct.pack(">h", 1) + encode(said, 1)
            self.asked = bench.join(
                self.member_id, protocols=(("range", metadata),), version=9, instance_id=self.instance_id
            )
        elif self.needs == "sync":
            self.asked = bench.sync(
                self.member_id, self.generation, self.days.shares(self), instance_id=self.instance_id
            )
        else:
            request = HeartbeatRequest(
                group_id="g", member_id=self.member_id, generation_id=self.generation,
                group_instance_id=self.instance_id,
            )  # fmt: skip
            self.asked = bench.submit(request, 4)

    def _answered(self, request: Any, answer: Any) -> None:
        error = answer.error_code
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID):
            self.owned, self.needs = [], "join"
            if error != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = ""
        elif isinstance(request, JoinGroupRequest):
            if answer.member_id:
                self.member_id = answer.member_id
            if not error:
                self.generation, self.needs = answer.generation_id, "sync"
                self.days.led[self.member_id] = [each.member_id for each in answer.members]
        elif isinstance(request, SyncGroupRequest) and not error:
            rows = decode(ConsumerProtocolAssignment, answer.assignment[2:], 1).assigned_partitions
            self.owned = [number for row in rows for number in row.partitions]
            self.needs = "beat"
        elif error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.needs = "join"


class Days:
    """What happens, from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.bench = ConsumerGroupBench(seed=seed, t=PARTITIONS)
        self.led: dict[str, list[str]] = {}
        self.classic = [Classic(self, f"c{number}" if number == 0 else None) for number in range(3)]
        self.epochs: dict[str, tuple[int, list[int]]] = {}
        self.notes: list[str] = []

    def shares(self, leader: Classic) -> dict[str, bytes]:
        members = self.led.get(leader.member_id, [])
        return {each: assignment(list(range(PARTITIONS))[place :: len(members)]) for place, each in enumerate(members)}

    def beat(self, member_id: str) -> None:
        epoch, owned = self.epochs.get(member_id, (0, []))
        topic = self.bench.ids["t"]
        call = self.bench.joins(member_id) if epoch == 0 else self.bench.beat(member_id, epoch, {topic: owned})
        answer = self.bench.answers.get(call)
        if answer is None or answer.error_code:
            self.epochs.pop(member_id, None)
            return
        if answer.assignment is not None:
            owned = [number for row in answer.assignment.topic_partitions for number in row.partitions]
        self.epochs[member_id] = (answer.member_epoch, owned)

    def step(self) -> None:
        bench, member_id = self.bench, f"m{self.random.randrange(2)}"
        match self.random.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                self.random.choice(self.classic).turn()
            case 5 | 6:
                self.beat(member_id)
            case 7:
                bench.beat(member_id, -1)
                self.epochs.pop(member_id, None)
            case 8:
                bench.advance(self.random.choice([100, 1_000, 3_000, 12_000]))
            case 9:
                bench.hold = True
            case 10:
                if bench.hold and self.random.random() < 0.3:
                    bench.fail_held(
                        self.random.choice([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
                    )
                    self.notes.append("failed")
                bench.release()
            case _:
                if self.random.random() < 0.3:
                    self.fail_over()

    def fail_over(self) -> None:
        bench = self.bench
        bench.release()
        before = bench.machine.stored
        bench.fail_over()
        assert bench.machine.stored == before, f"seed {self.seed}"
        assert all(not bench.is_waiting(call) for call in bench.asked), f"seed {self.seed}"
        self.notes.append("moved")

    def check(self) -> None:
        machine = self.bench.machine
        group = machine.stored.consumer_groups.get("g")
        classic = machine.classic.groups.get("g")
        where = f"seed {self.seed}"
        if group is not None and group.members:
            self.notes.append("new")
            assert classic is None, f"{where}: of both kinds"
            assert "g" not in machine.stored.generations, f"{where}: of both kinds in the log"
            owners: dict[int, str] = {}
            for member_id, current in group.current.items():
                for part in (current.assigned, current.pending_revocation):
                    for number in part.get(self.bench.ids["t"], {}):
                        assert owners.setdefault(number, member_id) == member_id, f"{where}: two own {number}"
            if any(member.classic for member in group.members.values()):
                self.notes.append("both")
        elif classic is not None and classic.members:
            self.notes.append("classic")


@pytest.mark.parametrize("seed", seeds(40))
def test_a_group_is_of_one_kind_and_the_next_coordinator_finds_it(seed: int) -> None:
    days = Days(seed)
    for _ in range(STEPS):
        days.step()
        days.check()
    days.fail_over()


def test_all_kinds_of_days_are_met() -> None:
    notes: list[str] = []
    for seed in range(15):
        days = Days(seed)
        for _ in range(STEPS):
            days.step()
            days.check()
        notes += days.notes
    for kind in ("new", "both", "classic", "failed", "moved"):
        assert notes.count(kind) > 10, kind
