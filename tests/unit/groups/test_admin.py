from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.groups.expiry import RECORDS_PER_WRITE
from tests.support.group_bench import GroupBench


def names(bench: GroupBench, states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
    return [group.group_id for group in bench.machine.list_groups(states or [], types or [])]


def test_a_stable_group_is_described_with_what_its_members_support_and_own() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2, client_id="app")
    described = bench.machine.describe("g")
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [(each.member_id, each.member_assignment) for each in described.members] == [
        (answer.member_id, answer.member_id.encode())
        for answer in sorted(
            (leader, follower), key=lambda each: list(bench.machine.groups["g"].members).index(each.member_id)
        )
    ]
    assert {(each.client_id, each.client_host, each.member_metadata) for each in described.members} == {
        ("app", "/127.0.0.1", b"meta")
    }


def test_a_group_in_a_rebalance_is_described_without_what_its_members_support() -> None:
    bench = GroupBench()
    leader, _ = bench.stable_group(2)
    bench.join(leader.member_id)
    described = bench.machine.describe("g")
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {each.member_metadata for each in described.members} == {b""}
    assert all(each.member_assignment for each in described.members), "they still own what they were given"


def test_consumers_without_a_group_are_an_empty_group() -> None:
    bench = GroupBench()
    bench.commit(1)
    described = bench.machine.describe("g")
    assert (described.error_code, described.group_state, described.protocol_type) == (0, "Empty", "")


def test_an_unknown_group_is_dead() -> None:
    bench = GroupBench()
    described = bench.machine.describe("g")
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group g not found."


def test_groups_are_listed_by_state_and_type() -> None:
    bench = GroupBench()
    bench.commit(1, group_id="offsets only")
    bench.stable_group(1, group_id="stable")
    bench.join_new(group_id="beginning")
    assert sorted(names(bench)) == ["beginning", "offsets only", "stable"]
    assert names(bench, ["stable"]) == names(bench, ["STABLE"], ["classic"]) == ["stable"]
    assert sorted(names(bench, ["Empty", "PreparingRebalance"])) == ["beginning", "offsets only"]
    assert names(bench, types=["consumer"]) == names(bench, ["nonsense"]) == names(bench, types=["nonsense"]) == []
    (listed,) = bench.machine.list_groups(["stable"], [])
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Stable", "classic")


def test_a_group_is_deleted_with_its_offsets() -> None:
    bench = GroupBench()
    (member,) = bench.stable_group(1)
    bench.commit(1, member_id=member.member_id, generation_id=1)
    bench.leave((member.member_id, None))
    assert bench.answer(bench.delete_group()).results[0].error_code == ErrorCode.NONE
    assert (bench.offset(), bench.state()) == (-1, "Dead")
    bench.fail_over()
    assert (bench.offset(), bench.state()) == (-1, "Dead")


def test_a_group_with_members_or_an_unknown_one_is_not_deleted() -> None:
    bench = GroupBench()
    bench.stable_group(1)
    assert bench.answer(bench.delete_group()).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert bench.answer(bench.delete_group("other")).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.state() == "Stable"


def test_a_group_that_only_awaits_an_id_is_deleted_and_the_id_void() -> None:
    bench = GroupBench()
    required = bench.answer(bench.join())
    assert bench.answer(bench.delete_group()).results[0].error_code == ErrorCode.NONE
    assert bench.answer(bench.join(required.member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_with_many_offsets_is_deleted_in_several_writes() -> None:
    bench = GroupBench()
    for partition in range(RECORDS_PER_WRITE + 1):
        bench.commit(1, partition=partition)
    bench.hold = True
    deleting = bench.delete_group()
    assert bench.is_waiting(deleting)
    bench.release()
    assert bench.answer(deleting).results[0].error_code == ErrorCode.NONE
    assert bench.machine.stored.group_ids() == []


def test_a_deletion_sees_the_commits_before_it() -> None:
    bench = GroupBench()
    bench.hold = True
    bench.commit(1)
    deleting = bench.delete_group()
    bench.release()
    assert bench.answer(deleting).results[0].error_code == ErrorCode.NONE
    assert bench.state() == "Dead"


def test_a_deletion_that_cannot_be_written_says_so() -> None:
    bench = GroupBench()
    bench.commit(1)
    bench.hold = True
    deleting = bench.delete_group()
    bench.fail_held(ErrorCode.KAFKA_STORAGE_ERROR)
    assert bench.answer(deleting).results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert bench.offset() == 1


def test_a_commit_that_comes_while_the_group_is_deleted_makes_it_anew() -> None:
    bench = GroupBench()
    bench.commit(1)
    bench.hold = True
    deleting, committing = bench.delete_group(), bench.commit(7, partition=1)
    bench.release()
    assert bench.answer(deleting).results[0].error_code == ErrorCode.NONE
    assert bench.answer(committing).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (bench.offset(), bench.offset("t", 1)) == (-1, 7)
