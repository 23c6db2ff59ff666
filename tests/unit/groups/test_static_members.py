"""Static members (KIP-345)."""

from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode
from tests.support.group_bench import GroupBench


def stable_static(bench: GroupBench, *instances: str) -> list:
    """A stable group of static members; the leader's answer first."""
    calls = {instance: bench.join(instance_id=instance) for instance in instances}
    bench.advance(6_000)
    answers = [bench.answer(call) for call in calls.values()]
    answers.sort(key=lambda answer: answer.member_id != answer.leader)
    bench.sync_all(answers)
    return answers


def instance_of(bench: GroupBench, member_id: str) -> str:
    return bench.machine.groups["g"].members[member_id].instance_id or ""


def test_a_static_member_gets_in_without_asking_for_an_id() -> None:
    bench = GroupBench()
    joining = bench.join(instance_id="one")
    bench.advance(3_000)
    assert bench.answer(joining).member_id.startswith("one-")
    assert bench.answer(joining).members[0].group_instance_id == "one"


def test_a_restarted_follower_takes_its_place_again_without_a_rebalance() -> None:
    bench = GroupBench()
    leader, follower = stable_static(bench, "one", "two")
    instance = instance_of(bench, follower.member_id)
    again = bench.answer(bench.join(instance_id=instance))
    assert (again.error_code, again.generation_id, again.leader) == (0, 1, leader.member_id)
    assert again.member_id != follower.member_id
    assert (again.members, again.skip_assignment) == ([], False)
    assert bench.state() == "Stable"
    synced = bench.answer(bench.sync(again.member_id, 1, instance_id=instance))
    assert synced.assignment == follower.member_id.encode()


def test_a_restarted_leader_is_told_to_skip_the_assignment() -> None:
    bench = GroupBench()
    leader, follower = stable_static(bench, "one", "two")
    again = bench.answer(bench.join(instance_id=instance_of(bench, leader.member_id)))
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert {member.member_id for member in again.members} == {again.member_id, follower.member_id}


def test_a_restarted_leader_of_an_old_client_is_not_told_that_it_leads() -> None:
    bench = GroupBench()
    leader, _ = stable_static(bench, "one", "two")
    again = bench.answer(bench.join(instance_id=instance_of(bench, leader.member_id), version=8))
    assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, [], False)


def test_the_one_who_was_replaced_is_fenced() -> None:
    bench = GroupBench()
    _, follower = stable_static(bench, "one", "two")
    instance, old_id = instance_of(bench, follower.member_id), follower.member_id
    bench.join(instance_id=instance)
    assert bench.heartbeat(old_id, 1, instance_id=instance) == ErrorCode.FENCED_INSTANCE_ID
    assert bench.commit_error(1, member_id=old_id, generation_id=1, instance_id=instance) == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    syncing, joining = bench.sync(old_id, 1, instance_id=instance), bench.join(old_id, instance_id=instance)
    leaving = bench.leave((old_id, instance))
    assert bench.answer(syncing).error_code == bench.answer(joining).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.answer(leaving).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_instance_id_is_unknown() -> None:
    bench = GroupBench()
    (member,) = stable_static(bench, "one")
    assert bench.heartbeat(member.member_id, 1, instance_id="other") == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_request_that_waits_is_fenced_when_its_member_is_replaced() -> None:
    bench = GroupBench()
    first = bench.join(instance_id="one")
    second = bench.join(instance_id="one")
    assert bench.answer(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    bench.advance(6_000)
    assert bench.answer(second).error_code == ErrorCode.NONE


def test_a_replacement_before_the_assignments_begins_a_rebalance() -> None:
    bench = GroupBench()
    calls = [bench.join(instance_id="one"), bench.join(instance_id="two")]
    bench.advance(6_000)
    follower = next(bench.answer(call) for call in calls if not bench.answer(call).members)
    waiting = bench.sync(follower.member_id, 1)
    replacing = bench.join(instance_id=instance_of(bench, follower.member_id))
    assert bench.answer(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.is_waiting(replacing)
    assert bench.state() == "PreparingRebalance"


def test_a_replacement_that_changes_the_selected_protocol_begins_a_rebalance() -> None:
    bench = GroupBench()
    both = (("range", b"meta"), ("sticky", b"meta"))
    joining = bench.join(instance_id="one", protocols=both)
    bench.advance(3_000)
    bench.sync_all([bench.answer(joining)])
    replacing = bench.join(instance_id="one", protocols=both[::-1])
    assert bench.answer(replacing).generation_id == 2
    assert bench.answer(replacing).protocol_name == "sticky"


def test_a_replacement_is_answered_when_its_new_id_is_in_the_log() -> None:
    bench = GroupBench()
    (old,) = stable_static(bench, "one")
    bench.hold = True
    replacing = bench.join(instance_id="one")
    assert bench.is_waiting(replacing)
    bench.release()
    new_id = bench.answer(replacing).member_id
    bench.fail_over()
    assert bench.heartbeat(new_id, 1, instance_id="one") == ErrorCode.NONE
    assert bench.heartbeat(old.member_id, 1, instance_id="one") == ErrorCode.FENCED_INSTANCE_ID


def test_a_replacement_that_cannot_be_stored_did_not_happen() -> None:
    bench = GroupBench()
    (old,) = stable_static(bench, "one")
    bench.hold = True
    replacing = bench.join(instance_id="one", session_timeout_ms=20_000)
    bench.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert bench.answer(replacing).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.answer(replacing).member_id == ""
    assert bench.heartbeat(old.member_id, 1, instance_id="one") == ErrorCode.NONE
    assert bench.machine.groups["g"].members[old.member_id].session_timeout_ms == 10_000


def test_a_replacement_that_is_undecided_keeps_the_new_id() -> None:
    bench = GroupBench()
    (old,) = stable_static(bench, "one")
    bench.hold = True
    replacing = bench.join(instance_id="one")
    bench.advance(5_000)
    assert bench.answer(replacing).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.release()
    assert bench.heartbeat(old.member_id, 1, instance_id="one") == ErrorCode.FENCED_INSTANCE_ID
    assert bench.answer(bench.join(instance_id="one")).error_code == ErrorCode.NONE


def test_a_rebalance_that_begins_meanwhile_answers_the_replacement() -> None:
    bench = GroupBench()
    (old,) = stable_static(bench, "one")
    bench.hold = True
    replacing = bench.join(instance_id="one")
    newcomer = bench.join_new()
    assert bench.answer(replacing).generation_id == bench.answer(newcomer).generation_id == 2
    bench.release()
    assert old.member_id not in bench.machine.groups["g"].members


def test_two_replacements_in_a_row_leave_the_last() -> None:
    bench = GroupBench()
    stable_static(bench, "one")
    bench.hold = True
    first, second = bench.join(instance_id="one"), bench.join(instance_id="one")
    assert bench.answer(first).error_code == ErrorCode.FENCED_INSTANCE_ID
    bench.release()
    new_id = bench.answer(second).member_id
    assert bench.heartbeat(new_id, 1, instance_id="one") == ErrorCode.NONE


@pytest.mark.parametrize("member_id_known", [True, False])
def test_an_administrator_removes_a_static_member_by_its_instance_id(member_id_known: bool) -> None:
    bench = GroupBench()
    leader, follower = stable_static(bench, "one", "two")
    instance = instance_of(bench, follower.member_id)
    leaving = bench.leave((follower.member_id if member_id_known else "", instance))
    assert bench.answer(leaving).members[0].error_code == ErrorCode.NONE
    assert bench.answer(leaving).members[0].group_instance_id == instance
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_keeps_its_place_over_a_short_absence() -> None:
    bench = GroupBench()
    stable_static(bench, "one")
    bench.advance(9_000)
    assert bench.answer(bench.join(instance_id="one")).generation_id == 1
    bench.advance(9_999)
    assert bench.state() == "Stable"
    bench.advance(1)
    assert bench.state() == "Empty"
