from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from appliance.groups.config import GroupConfig
from tests.support.group_bench import GroupBench


def test_a_dynamic_member_is_told_an_id_and_must_come_back_with_it() -> None:
    bench = GroupBench()
    required = bench.answer(bench.join(client_id="app"))
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("app-")
    assert len(required.member_id) == len("app-") + 36
    assert bench.is_waiting(bench.join(required.member_id))


def test_a_dynamic_member_of_an_old_client_gets_in_at_once() -> None:
    bench = GroupBench()
    joining = bench.join(version=3)
    assert bench.is_waiting(joining)
    bench.advance(3_000)
    assert bench.answer(joining).error_code == ErrorCode.NONE


def test_an_id_that_does_not_come_back_is_forgotten_with_its_group() -> None:
    bench = GroupBench()
    required = bench.answer(bench.join(session_timeout_ms=6_000))
    bench.advance(6_000)
    assert bench.machine.groups == {}
    assert bench.answer(bench.join(required.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "Dead"


def test_an_id_of_nobody_is_unknown() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    answer = bench.answer(bench.join("made-up"))
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "made-up")


@pytest.mark.parametrize("session_timeout_ms", [0, -1, 5_999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused(session_timeout_ms: int) -> None:
    bench = GroupBench()
    answer = bench.answer(bench.join(session_timeout_ms=session_timeout_ms))
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name() -> None:
    bench = GroupBench()
    assert bench.answer(bench.join(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ())], ids=["no type", "no protocols"]
)
def test_a_first_member_must_have_a_protocol(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    bench = GroupBench()
    answer = bench.answer(bench.join(protocol_type=protocol_type, protocols=protocols))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.machine.groups == {}


def test_a_member_of_another_type_or_without_a_common_protocol_does_not_get_in() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    other_type = bench.answer(bench.join(protocol_type="connect"))
    other_protocol = bench.answer(bench.join(protocols=(("sticky", b""),)))
    assert other_type.error_code == other_protocol.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.state() == "Stable"


def test_only_the_leader_is_told_who_else_is_there() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    assert leader.leader == follower.leader == leader.member_id
    assert {member.member_id for member in leader.members} == {leader.member_id, follower.member_id}
    assert [member.metadata for member in leader.members] == [b"meta", b"meta"]
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_the_protocol_that_most_members_like_best_is_selected_among_those_of_all() -> None:
    bench = GroupBench()
    calls = [
        bench.join_new(protocols=(("a", b"1"), ("b", b"2"))),
        bench.join_new(protocols=(("c", b"0"), ("b", b"2"), ("a", b"1"))),
        bench.join_new(protocols=(("b", b"2"), ("a", b"1"))),
    ]
    bench.advance(10_000)
    answers = [bench.answer(call) for call in calls]
    assert {answer.protocol_name for answer in answers} == {"b"}
    assert [member.metadata for member in answers[0].members] == [b"2", b"2", b"2"]


def test_a_full_group_takes_no_more_members() -> None:
    bench = GroupBench(GroupConfig(max_size=2))
    leader, _ = bench.stable_group(2)
    refused = bench.answer(bench.join())
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert bench.is_waiting(bench.join(leader.member_id))


def test_ids_that_were_given_out_are_bounded() -> None:
    bench = GroupBench(GroupConfig(pending_members_max=2))
    answers = [bench.answer(bench.join()) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_a_follower_that_rejoins_a_stable_group_unchanged_is_told_again() -> None:
    bench = GroupBench()
    _, follower = bench.stable_group(2)
    again = bench.answer(bench.join(follower.member_id))
    assert (again.error_code, again.generation_id, again.members) == (ErrorCode.NONE, follower.generation_id, [])
    assert bench.state() == "Stable"


def test_a_leader_that_rejoins_begins_a_rebalance() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    rejoining = bench.join(leader.member_id)
    assert bench.state() == "PreparingRebalance"
    assert bench.heartbeat(follower.member_id, follower.generation_id) == ErrorCode.REBALANCE_IN_PROGRESS
    other = bench.join(follower.member_id)
    assert bench.answer(rejoining).generation_id == bench.answer(other).generation_id == leader.generation_id + 1


def test_changed_metadata_begins_a_rebalance() -> None:
    bench = GroupBench()
    _, follower = bench.stable_group(2)
    assert bench.is_waiting(bench.join(follower.member_id, protocols=(("range", b"new"),)))
    assert bench.state() == "PreparingRebalance"


def test_who_joins_again_before_the_assignments_is_told_the_same_generation() -> None:
    bench = GroupBench()
    joining = bench.join_new()
    bench.advance(3_000)
    first = bench.answer(joining)
    again = bench.answer(bench.join(first.member_id))
    assert (again.generation_id, again.members) == (first.generation_id, first.members)
    assert bench.state() == "CompletingRebalance"


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first() -> None:
    bench = GroupBench()
    first = bench.join_new()
    member_id = first.request.member_id  # type: ignore[attr-defined]
    second = bench.join(member_id)
    assert bench.answer(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(6_000)
    assert bench.answer(second).error_code == ErrorCode.NONE


def test_before_version_7_there_is_an_empty_name_where_there_is_no_protocol() -> None:
    bench = GroupBench()
    assert bench.answer(bench.join("x", version=6)).protocol_name == ""
    assert bench.answer(bench.join("x", version=7)).protocol_name is None


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout() -> None:
    bench = GroupBench()
    joining = bench.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    bench.advance(3_000)
    member_id = bench.answer(joining).member_id
    assert bench.machine.groups["g"].members[member_id].rebalance_timeout_ms == 7_000


def test_a_pending_id_with_an_instance_id_is_unknown() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    required = bench.answer(bench.join())
    answer = bench.answer(bench.join(required.member_id, instance_id="i"))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
