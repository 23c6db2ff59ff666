"""Groups change their protocol while members live, and classic members are served in a consumer group."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.coordinator.calls import Call
from appliance.groups.states import GroupState
from appliance.wire.codec import decode, encode
from appliance.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from appliance.wire.messages.heartbeat import HeartbeatRequest
from tests.support.consumer_group_bench import ConsumerGroupBench


def subscription(*topics: str, owned: dict[str, list[int]] | None = None, version: int = 1) -> bytes:
    rows = [TopicPartition(topic=name, partitions=numbers) for name, numbers in (owned or {}).items()]
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=rows)
    return struct.pack(">h", version) + encode(message, version)


def assignment(**partitions: list[int]) -> bytes:
    rows = [TopicPartition(topic=name, partitions=numbers) for name, numbers in partitions.items()]
    return struct.pack(">h", 1) + encode(ConsumerProtocolAssignment(assigned_partitions=rows), 1)


def read(content: bytes) -> dict[str, list[int]]:
    message = decode(ConsumerProtocolAssignment, content[2:], 1)
    return {row.topic: list(row.partitions) for row in message.assigned_partitions}


class Bench(ConsumerGroupBench):
    """With classic consumers beside."""

    def classic_join(self, member_id: str = "", owned: dict[str, list[int]] | None = None, **options: Any) -> Call:
        protocols = options.pop("protocols", (("range", subscription("t", owned=owned)),))
        call = self.join(member_id, protocols=protocols, version=options.pop("version", 3), **options)
        if not self.hold:
            self.advance(0)
        return call

    def classic_sync(self, member_id: str, generation: int) -> Any:
        return self.answer(self.sync(member_id, generation))

    def classic_beat(self, member_id: str, generation: int) -> int:
        return self.heartbeat(member_id, generation)


def classic_group(config: ConsumerGroupConfig | None = None, **join: Any) -> tuple[Bench, str, int]:
    """A stable classic group of one, with both partitions of t."""
    b = Bench(config, t=2)
    joined = b.answer(b.classic_join(**join))
    b.answer(b.sync(joined.member_id, joined.generation_id, {joined.member_id: assignment(t=[0, 1])}))
    return b, joined.member_id, joined.generation_id


def test_a_member_of_the_new_protocol_joins_a_classic_group_and_nobody_loses_anything() -> None:
    b, classic, generation = classic_group()
    response = b.joined("m1")
    assert (response.error_code, response.member_epoch, b.assigned(response)) == (0, generation + 1, {})
    assert sorted(b.group.members) == sorted([classic, "m1"])
    assert b.group.current[classic].assigned == {b.ids["t"]: {0: generation, 1: generation}}
    assert not b.machine.classic.groups
    assert "g" not in b.machine.stored.generations
    before = b.machine.stored
    b.fail_over()
    assert b.machine.stored == before


def test_a_classic_member_gives_up_and_the_new_one_gets() -> None:
    b, classic, generation = classic_group()
    b.joined("m1")
    assert b.classic_beat(classic, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = b.answer(b.classic_join(classic, {"t": [0, 1]}))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, generation, "")
    kept = read(b.classic_sync(classic, joined.generation_id).assignment)["t"]
    assert len(kept) == 1
    assert b.said("m1", generation + 1).assignment is None
    assert b.classic_beat(classic, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = b.answer(b.classic_join(classic, {"t": kept}))
    assert again.generation_id == generation + 1
    assert read(b.classic_sync(classic, again.generation_id).assignment) == {"t": kept}
    got = b.assigned(b.said("m1", generation + 1))
    assert got == {"t": [number for number in (0, 1) if number not in kept]}
    assert b.classic_beat(classic, again.generation_id) == ErrorCode.NONE
    assert b.group.state_name == "Stable"


def test_who_waits_for_a_rebalance_is_told_to_come_again_when_the_group_changes() -> None:
    b, _classic, _ = classic_group()
    other = b.classic_join()
    assert b.is_waiting(other)
    b.joined("m1")
    assert b.answer(other).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_member_of_the_new_protocol_leaves_a_classic_group_behind() -> None:
    b, classic, generation = classic_group()
    b.joined("m1")
    b.said("m1", -1)
    assert "g" not in b.machine.stored.consumer_groups
    group = b.machine.classic.groups["g"]
    assert (list(group.members), group.state) == ([classic], GroupState.PREPARING_REBALANCE)
    assert b.classic_beat(classic, group.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = b.answer(b.classic_join(classic))
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, generation + 2, classic)
    b.fail_over()
    assert classic in b.machine.classic.groups["g"].members


def test_silence_of_the_last_member_of_the_new_protocol_leaves_a_classic_group_behind() -> None:
    b, classic, _generation = classic_group(session_timeout_ms=100_000)
    b.joined("m1")
    b.advance(46_000)
    assert list(b.machine.classic.groups["g"].members) == [classic]


def test_groups_keep_their_protocol_where_the_policy_says_so() -> None:
    b, classic, _ = classic_group(ConsumerGroupConfig(migration_policy="disabled"))
    assert b.joined("m1").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert list(b.machine.classic.groups["g"].members) == [classic]
    b, classic, _ = classic_group(ConsumerGroupConfig(migration_policy="upgrade"))
    assert b.joined("m1").error_code == 0
    b.said("m1", -1)
    assert list(b.group.members) == [classic]


def test_groups_of_other_kinds_are_left_alone() -> None:
    b = Bench(t=2)
    b.answer(b.classic_join(protocol_type="connect", protocols=(("default", b"opaque"),)))
    assert b.joined("m1").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    b = Bench(t=2)
    b.answer(b.classic_join(protocols=(("range", b"opaque"),)))
    assert b.joined("m1").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert b.machine.classic.groups["g"].members


@pytest.mark.parametrize("error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT])
def test_a_change_that_cannot_be_written_has_not_happened(error: ErrorCode) -> None:
    b, classic, generation = classic_group()
    b.hold = True
    call = b.joins("m1")
    beat = b.submit(HeartbeatRequest(group_id="g", member_id=classic, generation_id=generation), 4, after_writes_of="g")
    assert b.is_waiting(beat)
    if error is ErrorCode.NOT_ENOUGH_REPLICAS:
        b.fail_held(error)
        assert b.answer(call).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        b.hold = False
        assert b.classic_beat(classic, generation) == ErrorCode.NONE
        assert b.joined("m1").error_code == 0
        return
    b.advance(6_000)
    assert b.answer(call).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    # It is written after all.
    b.release()
    assert sorted(b.group.members) == sorted([classic, "m1"])
    assert not b.machine.classic.groups
    assert not b.is_waiting(beat)


def test_an_empty_group_takes_the_protocol_of_whoever_comes() -> None:
    b, classic, _generation = classic_group()
    b.leave((classic, None))
    assert b.joined("m1").error_code == 0
    assert "g" not in b.machine.stored.generations
    b.said("m1", -1)
    joined = b.answer(b.classic_join())
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert "g" not in b.machine.stored.consumer_groups


def test_offsets_stay_when_the_protocol_changes() -> None:
    b, classic, generation = classic_group()
    assert b.commit_error(7, member_id=classic, generation_id=generation) == 0
    b.joined("m1")
    assert b.offset() == 7
    b.said("m1", -1)
    assert b.offset() == 7


def test_a_classic_member_joins_a_consumer_group() -> None:
    b = Bench(t=2)
    b.joined("m1")
    b.advance(1_000)
    asked = b.answer(b.classic_join(version=9))
    assert (asked.error_code, len(asked.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, 22)
    joined = b.answer(b.classic_join(asked.member_id, version=9))
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 3, "range")
    assert read(b.classic_sync(joined.member_id, 3).assignment) == {}
    b.said("m1", 2)
    kept = b.assigned(b.said("m1", 2, {b.ids["t"]: [0]}, rebalance_timeout_ms=1, subscribed_topic_names=["t"]))
    if kept != {"t": [0]}:
        b.said("m1", 2, {b.ids["t"]: [1]})
    assert b.classic_beat(joined.member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    again = b.answer(b.classic_join(joined.member_id))
    assert len(read(b.classic_sync(joined.member_id, again.generation_id).assignment)["t"]) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody", "instance_id": "i1"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_classic_members_that_cannot_be_let_in(options: dict[str, Any], error: ErrorCode) -> None:
    b = Bench(t=2)
    b.joined("m1")
    assert b.answer(b.classic_join(version=9, **options)).error_code == error


def test_classic_requests_of_others_are_refused() -> None:
    b = Bench(t=2)
    b.joined("m1")
    assert b.classic_beat("m1", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.classic_sync("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joined = b.answer(b.classic_join())
    assert b.classic_beat(joined.member_id, joined.generation_id + 1) == ErrorCode.ILLEGAL_GENERATION
    assert b.classic_sync(joined.member_id, joined.generation_id + 1).error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_classic_member_that_does_not_come_when_it_should_is_removed() -> None:
    b, classic, generation = classic_group(rebalance_timeout_ms=9_000, session_timeout_ms=30_000)
    b.joined("m1")
    for _ in range(5):
        b.classic_beat(classic, generation)
        b.said("m1", b.group.current["m1"].epoch)
        b.advance(2_000)
    assert list(b.group.members) == ["m1"]


def test_a_classic_member_leaves_a_consumer_group() -> None:
    b, classic, _ = classic_group()
    b.joined("m1")
    assert b.answer(b.leave((classic, None))).error_code == 0
    assert list(b.group.members) == ["m1"]


def test_a_static_member_changes_its_protocol_and_keeps_what_it_has() -> None:
    b, _classic, _generation = classic_group(instance_id="i1", version=5)
    b.joined("m2")
    back = b.joined("m1", instance_id="i1")
    assert back.error_code == 0
    assert sorted(b.group.members) == ["m1", "m2"]
    other = b.answer(b.classic_join(instance_id="i1", version=5))
    assert other.error_code == 0
    assert sorted(b.group.members) == sorted([other.member_id, "m2"])


def test_the_last_member_of_the_new_protocol_is_replaced_by_a_classic_one() -> None:
    b, classic, _ = classic_group()
    b.joined("m1", instance_id="i1")
    joined = b.answer(b.classic_join(instance_id="i1", version=5))
    assert joined.error_code == 0
    group = b.machine.classic.groups["g"]
    assert sorted(group.members) == sorted([classic, joined.member_id])
    assert b.classic_sync(joined.member_id, joined.generation_id).error_code == ErrorCode.REBALANCE_IN_PROGRESS
