"""Requests that make no sense together: whatever clients send, groups neither break nor forget to answer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.groups.config import GroupConfig
from tests.support.group_bench import GroupBench

STEPS = 250
ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.RECORD_LIST_TOO_LARGE)
PROTOCOLS = (
    (("a", b"1"),),
    (("a", b"1"), ("b", b"2")),
    (("b", b""), ("b", b"again"), ("a", b"1")),
    (("c", bytes(30)),),
    (),
    (("", b""),),
)


class Stranger:
    """Sends what comes to its mind, with ids that are right, wrong or somebody else's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        config = GroupConfig(
            initial_rebalance_delay_ms=self.random.choice([0, 700]),
            max_size=self.random.choice([2, 100]),
            pending_members_max=3,
            offsets_retention_ms=self.random.choice([1, 10**9]),
            offsets_retention_check_interval_ms=2_000,
        )
        self.bench = GroupBench(config, seed)
        self.member_ids = ["", "", "made-up"]

    def step(self) -> None:
        bench, chance = self.bench, self.random
        group_id = chance.choice(["g", "g", "g", "h", ""])
        instance_id = chance.choice([None, None, "i", "j", ""])
        member_id = chance.choice(self.member_ids[-8:] + self.member_ids[:3])
        group = bench.machine.groups.get(group_id)
        generation_id = chance.choice([group.generation_id if group else 0] * 6 + [-1, 0, 1, 2**31 - 1, -(2**31)])
        match chance.randrange(14):
            case 0 | 1 | 2 | 3:
                answer = bench.answers.get(
                    bench.join(
                        member_id,
                        group_id=group_id,
                        instance_id=instance_id,
                        protocols=chance.choice(PROTOCOLS[:3] * 3 + PROTOCOLS),
                        protocol_type=chance.choice(["consumer"] * 8 + ["connect", ""]),
                        session_timeout_ms=chance.choice([6_000, 10_000, 1, 2**31 - 1]),
                        rebalance_timeout_ms=chance.choice([5_000, 60_000, 0, -1]),
                        version=chance.choice([0, 3, 4, 6, 9]),
                    )
                )
                self.learn(answer)
            case 4 | 5 | 6:
                assignments = {chance.choice(self.member_ids): bytes(chance.randrange(9)) for _ in range(4)}
                name = (group.protocol_name if group else None) or chance.choice(["a", "nonsense"])
                bench.sync(
                    member_id,
                    generation_id,
                    assignments,
                    group_id=group_id,
                    instance_id=instance_id,
                    protocol_name=name,
                    version=chance.choice([0, 3, 5]),
                )
            case 7 | 8:
                bench.heartbeat(member_id, generation_id, group_id=group_id, instance_id=instance_id)
            case 9:
                bench.leave(*[(chance.choice(self.member_ids), instance_id) for _ in range(chance.randrange(3))])
            case 10 | 11:
                bench.commit(
                    chance.choice([0, 5, -1, 2**63 - 1]),
                    member_id=member_id,
                    generation_id=generation_id,
                    group_id=group_id,
                    instance_id=instance_id,
                    version=chance.choice([2, 8, 10]),
                    retention_time_ms=chance.choice([-1, 0, 1_000]),
                    metadata=chance.choice(["", None, "x" * 5_000, "ü"]),
                )
            case 12:
                chance.choice([bench.delete_group, lambda name: bench.delete_offset(group_id=name)])(group_id)
            case _:
                self.disturb()

    def disturb(self) -> None:
        match self.random.randrange(6):
            case 0:
                self.bench.fail_over()
            case 1:
                self.bench.hold = not self.bench.hold
                self.bench.pump()
            case 2:
                self.bench.fail_held(self.random.choice(ERRORS))
            case _:
                self.bench.advance(self.random.choice([1, 500, 3_000, 7_000]))
        for answer in list(self.bench.answers.values()):
            self.learn(answer)

    def learn(self, answer: Any) -> None:
        member_id = getattr(answer, "member_id", "")
        if member_id and member_id not in self.member_ids:
            self.member_ids.append(member_id)


@pytest.mark.parametrize("seed", range(30))
def test_no_request_breaks_a_group_or_stays_without_an_answer(seed: int) -> None:
    stranger = Stranger(seed)
    for _ in range(STEPS):
        stranger.step()
    bench = stranger.bench
    bench.fail_over()
    assert [call for call in bench.asked if call not in bench.answers] == []
    bench.hold = False
    bench.advance(3_600_000)
    assert bench.machine.groups == {}, "everybody who is silent is forgotten"
