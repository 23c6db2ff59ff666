from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.group_bench import GroupBench


def completing(bench: GroupBench, size: int = 2, **options: object) -> list:
    """A group whose members have joined; the leader's answer first."""
    calls = [bench.join_new(**options) for _ in range(size)]
    bench.advance(6_000)
    answers = [bench.answer(call) for call in calls]
    return sorted(answers, key=lambda answer: answer.member_id != answer.leader)


def test_members_are_told_what_the_leader_assigned_to_them() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    early = bench.sync(follower.member_id, 1)
    assert bench.is_waiting(early)
    leading = bench.sync(leader.member_id, 1, {leader.member_id: b"mine", follower.member_id: b"yours"})
    assert (bench.answer(early).assignment, bench.answer(leading).assignment) == (b"yours", b"mine")
    assert (bench.answer(early).protocol_type, bench.answer(early).protocol_name) == ("consumer", "range")
    assert bench.state() == "Stable"


def test_nobody_is_told_before_the_assignments_are_committed() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    bench.hold = True
    calls = [bench.sync(follower.member_id, 1), bench.sync(leader.member_id, 1, {follower.member_id: b"x"})]
    assert all(bench.is_waiting(call) for call in calls)
    assert bench.state() == "CompletingRebalance"
    bench.release()
    assert [bench.answer(call).assignment for call in calls] == [b"x", b""]


def test_a_member_that_the_leader_forgot_gets_nothing_and_a_stranger_is_left_out() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    bench.sync(leader.member_id, 1, {"stranger": b"x"})
    assert bench.answer(bench.sync(follower.member_id, 1)).assignment == b""
    members = bench.machine.stored.generations["g"].members
    assert {member.member_id for member in members} == {leader.member_id, follower.member_id}


def test_a_late_member_of_a_stable_group_is_told_its_assignment() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    bench.sync(leader.member_id, 1, {follower.member_id: b"x"})
    late = bench.answer(bench.sync(follower.member_id, 1))
    assert (late.error_code, late.assignment) == (ErrorCode.NONE, b"x")


def test_a_sync_of_another_generation_or_member_is_refused() -> None:
    bench = GroupBench()
    leader, _ = completing(bench)
    assert bench.answer(bench.sync(leader.member_id, 0)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert bench.answer(bench.sync(leader.member_id, 2)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert bench.answer(bench.sync("nobody", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.answer(bench.sync("x", 1, group_id="other")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.answer(bench.sync("x", 1, group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_sync_with_another_protocol_is_refused() -> None:
    bench = GroupBench()
    leader, _ = completing(bench)
    for options in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        answer = bench.answer(bench.sync(leader.member_id, 1, **options))  # type: ignore[arg-type]
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_from_version_5_the_protocol_must_be_named() -> None:
    bench = GroupBench()
    leader, _ = completing(bench)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=leader.member_id)
    assert bench.answer(bench.submit(request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.answer(bench.submit(request, 4)).error_code == ErrorCode.NONE


def test_a_sync_during_a_rebalance_is_told_so() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    bench.join(leader.member_id)
    answer = bench.answer(bench.sync(follower.member_id, follower.generation_id))
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_wait_for_assignments_are_told_of_a_new_rebalance() -> None:
    bench = GroupBench()
    _, follower = completing(bench)
    waiting = bench.sync(follower.member_id, 1)
    bench.join_new()
    assert bench.answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.state() == "PreparingRebalance"


def test_assignments_that_come_into_the_log_too_late_assign_nothing() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    bench.hold = True
    leading = bench.sync(leader.member_id, 1, {follower.member_id: b"x"})
    bench.join_new()
    assert bench.answer(leading).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.release()
    assert bench.state() == "PreparingRebalance"
    assert bench.machine.stored.generations["g"].generation_id == 1


def test_assignments_that_cannot_be_stored_make_all_join_again() -> None:
    bench = GroupBench()
    leader, follower = completing(bench)
    bench.hold = True
    calls = [bench.sync(follower.member_id, 1), bench.sync(leader.member_id, 1, {})]
    bench.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {bench.answer(call).error_code for call in calls} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert bench.state() == "PreparingRebalance"
    bench.release()
    again = [bench.join(member.member_id) for member in (leader, follower)]
    assert {bench.answer(call).generation_id for call in again} == {2}


def test_assignments_that_are_too_large_for_a_batch_are_an_error_of_ours() -> None:
    bench = GroupBench()
    leader, _ = completing(bench)
    answer = bench.answer(bench.sync(leader.member_id, 1, {leader.member_id: bytes(1_100_000)}))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.state() == "PreparingRebalance"


def test_a_leader_that_asks_twice_writes_once() -> None:
    bench = GroupBench()
    leader, _ = completing(bench)
    bench.hold = True
    first = bench.sync(leader.member_id, 1, {leader.member_id: b"a"})
    second = bench.sync(leader.member_id, 1, {leader.member_id: b"b"})
    assert len(bench.held) == 1
    assert bench.answer(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.release()
    assert bench.answer(second).assignment == b"a"


def test_who_does_not_ask_for_its_assignment_in_time_is_removed() -> None:
    bench = GroupBench()
    leader, follower = completing(bench, rebalance_timeout_ms=5_000, session_timeout_ms=60_000)
    bench.sync(leader.member_id, 1, {})
    # The join phase was over after 5,000 of the 6,000 ms that have passed.
    bench.advance(3_999)
    assert bench.state() == "Stable"
    bench.advance(1)
    assert bench.state() == "PreparingRebalance"
    assert bench.heartbeat(follower.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_assigns_is_removed_and_another_leads() -> None:
    bench = GroupBench()
    options = {"rebalance_timeout_ms": 7_000, "session_timeout_ms": 60_000}
    _, follower = completing(bench, **options)
    waiting = bench.sync(follower.member_id, 1)
    bench.advance(7_000)
    assert bench.answer(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.answer(bench.join(follower.member_id, **options))
    assert (again.leader, again.generation_id) == (follower.member_id, 2)


def test_a_member_that_waits_for_its_assignment_need_not_send_heartbeats() -> None:
    bench = GroupBench()
    leader, follower = completing(bench, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    waiting = bench.sync(follower.member_id, 1)
    for _ in range(3):
        bench.advance(4_000)
        assert bench.heartbeat(leader.member_id, 1) == ErrorCode.NONE
    assert bench.is_waiting(waiting)
    bench.sync(leader.member_id, 1, {})
    bench.advance(5_999)
    assert bench.heartbeat(follower.member_id, 1) == ErrorCode.NONE
