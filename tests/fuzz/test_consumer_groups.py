"""Requests that no client would send, to groups of the new protocol: each is answered once, and the log can be read."""

from __future__ import annotations

import random
import uuid

import pytest

from appliance.base.randomness import SeededRandomness
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.consumer_group_bench import ConsumerGroupBench
from tests.support.seeds import seeds

STEPS = 200


@pytest.mark.parametrize("seed", seeds(15))
def test_no_request_is_too_strange(seed: int) -> None:
    chance, bytes_of = random.Random(seed), SeededRandomness(seed).random_bytes
    bench = ConsumerGroupBench(seed=seed, t=3, u=2)
    ids = [*bench.ids.values(), uuid.UUID(int=0), uuid.UUID(int=7)]
    names = ["", "m1", "m2", "\u00e4" * 300]

    def partitions() -> list[TopicPartitions] | None:
        if chance.random() < 0.4:
            return None
        return [
            TopicPartitions(topic_id=chance.choice(ids), partitions=[chance.randrange(-2, 5) for _ in range(3)])
            for _ in range(chance.randrange(3))
        ]

    for _ in range(STEPS):
        match chance.randrange(10):
            case 0:
                version = chance.choice([0, 3, 4, 9])
                rows = [
                    JoinGroupRequestProtocol(
                        name=chance.choice(["range", "", "x"]), metadata=bytes_of(chance.randrange(20))
                    )
                    for _ in range(chance.randrange(3))
                ]
                bench.submit(JoinGroupRequest(
                    group_id="g", member_id=chance.choice(names), protocol_type=chance.choice(["consumer", "", "x"]),
                    session_timeout_ms=chance.choice([-1, 10_000]), rebalance_timeout_ms=chance.choice([-1, 0, 10_000]),
                    protocols=rows, group_instance_id=chance.choice([None, "i1", ""]),
                ), version)  # fmt: skip
            case 1:
                bench.submit(SyncGroupRequest(group_id="g", member_id=chance.choice(names), generation_id=2), 4)
            case 2:
                gone = MemberIdentity(member_id=chance.choice(names), group_instance_id=chance.choice([None, "i1"]))
                bench.submit(LeaveGroupRequest(group_id="g", members=[gone, gone]), 5)
            case 3:
                bench.world.put(chance.choice("tuv"), chance.randrange(1, 5))
            case 4:
                bench.advance(chance.choice([0, 1_000, 50_000]))
            case _:
                bench.submit(ConsumerGroupHeartbeatRequest(
                    group_id="g", member_id=chance.choice(names), member_epoch=chance.choice([-3, -2, -1, 0, 0, 2, 9]),
                    instance_id=chance.choice([None, None, "i1", "i2", ""]), rack_id=chance.choice([None, "r"]),
                    rebalance_timeout_ms=chance.choice([-1, -7, 0, 1_000]), topic_partitions=partitions(),
                    subscribed_topic_names=chance.choice([None, [], ["t", "t"], ["u", "nope", ""]]),
                    subscribed_topic_regex=chance.choice([None, None, "", "[tu]", "(", "t.*"]),
                    server_assignor=chance.choice([None, "range", "x"]),
                ), chance.choice([0, 1]))  # fmt: skip
    before = bench.machine.stored
    bench.fail_over()
    assert bench.machine.stored == before
    assert all(not bench.is_waiting(call) for call in bench.asked)
