from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.groups.config import GroupConfig
from tests.support.group_bench import GroupBench


def test_a_new_group_waits_for_more_members() -> None:
    bench = GroupBench()
    first = bench.join_new()
    bench.advance(2_999)
    assert bench.is_waiting(first)
    bench.advance(1)
    assert bench.answer(first).error_code == ErrorCode.NONE


def test_a_new_member_lengthens_the_wait_of_a_new_group() -> None:
    bench = GroupBench()
    first = bench.join_new()
    bench.advance(1_000)
    second = bench.join_new()
    bench.advance(2_000)
    assert bench.is_waiting(first)
    bench.advance(3_000)
    assert bench.answer(first).generation_id == bench.answer(second).generation_id == 1


def test_the_wait_of_a_new_group_has_an_end_even_if_members_keep_coming() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=3_000))
    calls = [bench.join_new(rebalance_timeout_ms=7_000)]
    for _ in range(6):
        bench.advance(1_000)
        calls.append(bench.join_new(rebalance_timeout_ms=7_000))
    assert all(bench.is_waiting(call) for call in calls)
    bench.advance(1_000)
    assert {bench.answer(call).generation_id for call in calls} == {1}


def test_without_a_delay_a_new_group_begins_at_once() -> None:
    bench = GroupBench(GroupConfig(initial_rebalance_delay_ms=0))
    joining = bench.join_new()
    bench.advance(0)
    assert bench.answer(joining).generation_id == 1


def test_a_rebalance_ends_when_all_members_are_back() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    newcomer = bench.join_new()
    assert bench.is_waiting(newcomer)
    first = bench.join(leader.member_id)
    assert bench.is_waiting(first)
    second = bench.join(follower.member_id)
    generations = {bench.answer(call).generation_id for call in (newcomer, first, second)}
    assert generations == {2}
    assert bench.answer(first).leader == leader.member_id


def test_a_rebalance_waits_for_an_id_that_was_just_given_out() -> None:
    bench = GroupBench()
    (leader,) = bench.stable_group(1)
    required = bench.answer(bench.join(session_timeout_ms=6_000))
    rejoining = bench.join(leader.member_id)
    assert bench.is_waiting(rejoining)
    bench.join(required.member_id)
    assert bench.answer(rejoining).generation_id == 2


def test_a_rebalance_does_not_wait_for_an_id_whose_time_is_over() -> None:
    bench = GroupBench()
    (leader,) = bench.stable_group(1)
    bench.answer(bench.join(session_timeout_ms=6_000))
    rejoining = bench.join(leader.member_id)
    bench.advance(6_000)
    assert bench.answer(rejoining).generation_id == 2


def test_dynamic_members_that_do_not_come_back_in_time_are_removed() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2, rebalance_timeout_ms=5_000)
    rejoining = bench.join(leader.member_id, rebalance_timeout_ms=5_000)
    bench.advance(4_999)
    assert bench.is_waiting(rejoining)
    bench.advance(1)
    answer = bench.answer(rejoining)
    assert [member.member_id for member in answer.members] == [leader.member_id]
    assert bench.heartbeat(follower.member_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_most_patient_member_sets_the_time() -> None:
    bench = GroupBench()
    leader, _ = bench.stable_group(2, rebalance_timeout_ms=9_000, session_timeout_ms=60_000)
    rejoining = bench.join(leader.member_id, rebalance_timeout_ms=5_000)
    bench.advance(8_999)
    assert bench.is_waiting(rejoining)
    bench.advance(1)
    assert bench.answer(rejoining).error_code == ErrorCode.NONE


def test_another_leads_when_the_leader_does_not_come_back() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2, rebalance_timeout_ms=5_000)
    rejoining = bench.join(follower.member_id, protocols=(("range", b"new"),), rebalance_timeout_ms=5_000)
    bench.advance(5_000)
    answer = bench.answer(rejoining)
    assert answer.leader == follower.member_id
    assert [member.member_id for member in answer.members] == [follower.member_id]
    assert leader.member_id not in bench.machine.groups["g"].members


def test_static_members_that_do_not_come_back_keep_their_place() -> None:
    bench = GroupBench()
    options = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 60_000}
    static = bench.join(instance_id="one", **options)
    dynamic = bench.join_new(**options)
    bench.advance(6_000)
    joined = [bench.answer(static), bench.answer(dynamic)]
    bench.sync_all(joined)
    rejoining = bench.join(joined[1].member_id, protocols=(("range", b"new"),), **options)
    bench.advance(5_000)
    answer = bench.answer(rejoining)
    assert answer.leader == joined[1].member_id
    assert {member.group_instance_id for member in answer.members} == {"one", None}


def test_a_rebalance_of_silent_static_members_only_waits_for_their_sessions() -> None:
    bench = GroupBench()
    options = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 20_000}
    static = bench.join(instance_id="one", **options)
    dynamic = bench.join_new(**options)
    bench.advance(6_000)
    joined = [bench.answer(static), bench.answer(dynamic)]
    bench.sync_all(joined)
    bench.leave((joined[1].member_id, None))
    bench.advance(12_000)
    assert bench.state() == "PreparingRebalance"
    bench.advance(8_000)
    assert bench.state() == "Empty"


def test_a_rebalance_that_nobody_comes_to_is_not_looked_at_all_the_time() -> None:
    bench = GroupBench()
    impatient = {"rebalance_timeout_ms": 0, "session_timeout_ms": 20_000}
    static = bench.join(instance_id="one")
    bench.advance(3_000)
    bench.sync_all([bench.answer(static)])
    bench.join(instance_id="one", **impatient)
    pending = bench.answer(bench.join(**impatient)).member_id
    bench.join(pending, **impatient)
    bench.leave((pending, None))
    looks = 0
    while bench.state() == "PreparingRebalance":
        due_ms = bench.shard.next_due_ms()
        assert due_ms is not None
        bench.now_ms = max(due_ms, bench.now_ms)
        bench.shard.tick(bench.now)
        bench.pump()
        looks += 1
        assert looks < 30
    assert bench.now_ms >= 20_000


def test_a_group_that_nobody_is_left_in_is_stored_as_empty_and_needs_no_object() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    bench.leave((leader.member_id, None), (follower.member_id, None))
    assert bench.state() == "Empty"
    assert bench.machine.groups == {}
    generation = bench.machine.stored.generations["g"]
    assert (generation.generation_id, generation.members, generation.protocol_type) == (2, (), "consumer")


def test_generations_go_on_after_a_group_was_empty() -> None:
    bench = GroupBench()
    (leader,) = bench.stable_group(1)
    bench.leave((leader.member_id, None))
    assert bench.stable_group(1)[0].generation_id == 3


def test_an_empty_group_that_could_not_be_stored_stays_empty() -> None:
    bench = GroupBench()
    (leader,) = bench.stable_group(1)
    bench.hold = True
    leaving = bench.leave((leader.member_id, None))
    bench.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bench.answer(leaving).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state() == "Empty"
    bench.hold = False
    assert bench.stable_group(1)[0].generation_id == 3


def test_time_in_which_nobody_could_reach_us_does_not_count() -> None:
    bench = GroupBench()
    options = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 9_000}
    leader, follower = bench.stable_group(2, **options)
    rejoining = bench.join(leader.member_id, **options)
    bench.now_ms += 60_000
    bench.shard.decide(lambda: bench.machine.time_anew(bench.now), bench.now)
    bench.advance(5_999)
    assert bench.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    bench.advance(3_000)
    assert bench.is_waiting(rejoining)
    bench.advance(1)
    assert bench.answer(rejoining).generation_id == 2
    bench.now_ms += 60_000
    bench.shard.decide(lambda: bench.machine.time_anew(bench.now), bench.now)
    bench.advance(5_999)
    assert bench.heartbeat(leader.member_id, 2) == ErrorCode.NONE
    bench.advance(3_001)
    assert bench.heartbeat(leader.member_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID, "it never asked for its assignment"


def test_when_the_last_member_to_come_back_is_too_many_it_is_left_out() -> None:
    bench = GroupBench(GroupConfig(max_size=3))
    members = bench.stable_group(3)
    bench.config = GroupConfig(max_size=2)
    bench.fail_over()
    assert bench.state() == "PreparingRebalance"
    calls = [bench.join(member.member_id) for member in members]
    assert bench.answer(calls[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [len(bench.answer(call).members) for call in calls[:2]] == [2, 0]
