from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.wire.messages.leave_group import LeaveGroupRequest
from tests.support.group_bench import GroupBench


def test_a_member_lives_as_long_as_it_sends_heartbeats() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1, session_timeout_ms=6_000)
    for _ in range(5):
        bench.advance(5_000)
        assert bench.heartbeat(member.member_id, 1) == ErrorCode.NONE
    bench.advance(6_000)
    assert bench.heartbeat(member.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.state() == "Empty"


def test_a_silent_member_makes_the_others_rebalance() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2, session_timeout_ms=6_000)
    bench.advance(4_000)
    bench.heartbeat(leader.member_id, 1)
    bench.advance(2_000)
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.member_id not in bench.machine.groups["g"].members


def test_a_heartbeat_of_another_generation_member_or_group_is_refused() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    assert bench.heartbeat(member.member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(member.member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member.member_id, 1, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(member.member_id, 1, group_id="") == ErrorCode.INVALID_GROUP_ID


def test_a_heartbeat_before_the_assignments_is_fine() -> None:
    bench = GroupBench()
    joining = bench.join_new()
    bench.advance(3_000)
    assert bench.heartbeat(bench.answer(joining).member_id, 1) == ErrorCode.NONE


def test_a_member_that_waits_in_a_rebalance_need_not_send_heartbeats() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2, session_timeout_ms=6_000)
    rejoining = bench.join(leader.member_id, session_timeout_ms=6_000)
    for _ in range(4):
        bench.advance(4_000)
        assert bench.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.is_waiting(rejoining)


def test_a_new_member_that_is_kept_waiting_is_asked_to_join_anew() -> None:
    bench = GroupBench()
    options = {"session_timeout_ms": 1_800_000, "rebalance_timeout_ms": 1_800_000}
    bench.stable_group(1, **options)
    newcomer = bench.join_new(**options)
    bench.advance(5 * 60_000 - 1)
    assert bench.is_waiting(newcomer)
    bench.advance(1)
    answer = bench.answer(newcomer)
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_member_that_leaves_makes_the_others_rebalance_at_once() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    answer = bench.answer(bench.leave((leader.member_id, None)))
    assert (answer.error_code, [member.error_code for member in answer.members]) == (0, [0])
    assert bench.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_leaving_ends_a_rebalance_that_waited_for_this_member_only() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    rejoining = bench.join(leader.member_id)
    bench.leave((follower.member_id, None))
    assert bench.answer(rejoining).generation_id == 2


def test_a_member_that_leaves_while_it_waits_is_told_so() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    rejoining = bench.join(follower.member_id, protocols=(("range", b"new"),))
    bench.leave((follower.member_id, None))
    assert bench.answer(rejoining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    bench.join(leader.member_id)
    syncing = bench.sync(leader.member_id, 2, {leader.member_id: b"all"})
    assert bench.answer(syncing).assignment == b"all"


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_told_so() -> None:
    bench = GroupBench()
    calls = [bench.join_new(), bench.join_new()]
    bench.advance(6_000)
    follower = next(bench.answer(call) for call in calls if not bench.answer(call).members)
    waiting = bench.sync(follower.member_id, 1)
    bench.leave((follower.member_id, None))
    assert bench.answer(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_each_leaving_member_gets_its_own_error() -> None:
    bench = GroupBench()
    leader, _ = bench.stable_group(2)
    answer = bench.answer(bench.leave(("nobody", None), (leader.member_id, None), ("", "no-instance"), ("", None)))
    assert [member.error_code for member in answer.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [member.member_id for member in answer.members] == ["nobody", leader.member_id, "", ""]


def test_leaving_an_unknown_group_is_an_error_of_each_member() -> None:
    bench = GroupBench()
    answer = bench.answer(bench.leave(("a", None), group_id="other"))
    assert (answer.error_code, answer.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    assert bench.answer(bench.leave(("a", None), group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_an_old_client_leaves_alone_with_a_top_level_error() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    unknown = bench.submit(LeaveGroupRequest(group_id="g", member_id="nobody"), 2)
    assert (bench.answer(unknown).error_code, bench.answer(unknown).members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    known = bench.submit(LeaveGroupRequest(group_id="g", member_id=member.member_id), 2)
    assert bench.answer(known).error_code == ErrorCode.NONE
    assert bench.state() == "Empty"


def test_an_id_that_was_given_out_may_leave_without_a_rebalance() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    required = bench.answer(bench.join())
    answer = bench.answer(bench.leave((required.member_id, None)))
    assert answer.members[0].error_code == ErrorCode.NONE
    assert bench.state() == "Stable"
    assert bench.answer(bench.join(required.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_has_left_when_the_log_says_so() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    bench.hold = True
    leaving = bench.leave((member.member_id, None))
    assert bench.is_waiting(leaving)
    assert bench.state() == "Empty"
    bench.release()
    assert bench.answer(leaving).members[0].error_code == ErrorCode.NONE
