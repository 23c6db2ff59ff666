"""Members leave, fall silent, keep partitions for too long, or go away for a while."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from tests.support.consumer_group_bench import ConsumerGroupBench

INTERVAL_MS = 1_000


def test_who_leaves_is_gone_and_the_others_get_its_partitions() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    b.joined("m2")
    left = b.said("m1", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m1", -1)
    b.advance(INTERVAL_MS)
    assert b.assigned(b.said("m2", 2)) == {"t": [0, 1, 2, 3]}


def test_the_last_one_leaves_an_empty_group_that_can_be_deleted() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    assert b.answer(b.delete_group("g")).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    b.said("m1", -1)
    assert b.group.state_name == "Empty"
    assert b.answer(b.delete_group("g")).results[0].error_code == 0
    assert "g" not in b.machine.stored
    b.fail_over()
    assert "g" not in b.machine.stored


def test_strangers_cannot_leave() -> None:
    b = ConsumerGroupBench(t=4)
    assert b.said("m1", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    b.joined("m1", instance_id="i1")
    assert b.said("m2", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.said("m2", -1, instance_id="i2").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.said("m2", -1, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID


def test_who_is_silent_for_its_session_is_removed() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    b.joined("m2")
    for _ in range(9):
        b.advance(5_000)
        b.said("m2", b.group.current["m2"].epoch)
    assert list(b.group.members) == ["m2"]
    assert b.said("m1", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_silence_is_counted_from_the_load_of_a_new_coordinator() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    b.advance(40_000)
    b.fail_over()
    b.advance(44_999)
    assert list(b.group.members) == ["m1"]
    b.advance(1)
    assert b.group.is_empty


def test_a_removal_waits_for_what_is_being_written_and_comes_again() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1")
    b.advance(44_000)
    b.hold = True
    b.joins("m2")
    b.advance(2_000)
    assert len(b.held) == 1
    b.release()
    b.advance(1_000)
    assert list(b.group.members) == ["m2"]


def test_who_does_not_give_up_in_its_rebalance_timeout_is_removed() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", rebalance_timeout_ms=10_000)
    b.advance(INTERVAL_MS)
    b.joined("m2")
    for _ in range(3):
        b.said("m1", 2)
        b.said("m2", 3)
        b.advance(4_000)
    assert list(b.group.members) == ["m2"]
    b.advance(INTERVAL_MS)
    assert b.assigned(b.said("m2", 3)) == {"t": [0, 1, 2, 3]}


def test_who_gives_up_in_time_stays() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", rebalance_timeout_ms=10_000)
    b.advance(INTERVAL_MS)
    b.joined("m2")
    b.said("m1", 2)
    b.said("m1", 2, {b.ids["t"]: [0, 1]})
    b.advance(20_000)
    assert sorted(b.group.members) == ["m1", "m2"]


def test_a_static_member_keeps_its_partitions_while_it_is_away() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", instance_id="i1")
    b.joined("m2")
    epoch = b.group.epoch
    left = b.said("m1", -2, instance_id="i1")
    assert (left.error_code, left.member_epoch) == (0, -2)
    b.advance(INTERVAL_MS)
    assert b.said("m1", 2, instance_id="i1").error_code == ErrorCode.FENCED_MEMBER_EPOCH
    back = b.joined("m3", instance_id="i1")
    assert (back.error_code, b.group.epoch) == (0, epoch)
    assert sorted(b.group.members) == ["m2", "m3"]
    assert b.assigned(back) == {"t": [0, 1]}
    assert b.said("m1", 3, instance_id="i1").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert b.assigned(b.said("m2", 2)) == {"t": [2, 3]}


def test_a_static_member_that_stays_away_is_removed_after_its_session() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", instance_id="i1")
    b.said("m1", -2, instance_id="i1")
    b.advance(44_000)
    assert not b.group.is_empty
    b.advance(1_000)
    assert b.group.is_empty


def test_an_instance_id_that_is_in_use_is_given_to_nobody() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", instance_id="i1")
    assert b.joined("m2", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert b.joined("m1", instance_id="i1").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert list(b.group.members) == ["m1"]


def test_a_static_member_that_is_back_under_the_same_id_has_what_it_had() -> None:
    b = ConsumerGroupBench(t=4)
    b.joined("m1", instance_id="i1")
    b.said("m1", -2, instance_id="i1")
    back = b.joined("m1", instance_id="i1")
    assert (back.member_epoch, b.assigned(back)) == (2, {"t": [0, 1, 2, 3]})
    b.fail_over()
    assert b.group.state_name == "Stable"


def test_members_who_fall_silent_together_are_removed_by_one_write() -> None:
    b = ConsumerGroupBench(ConsumerGroupConfig(assignment_interval_ms=0, session_timeout_ms=10_000), t=4)
    for number in range(20):
        b.joined(f"m{number:02}")
    for _ in range(5):
        b.advance(1_900)
        b.said("m00", b.group.current_of("m00").epoch)
    before, epoch = len(b.log), b.group.epoch
    b.advance(1_000)
    assert list(b.group.members) == ["m00"]
    assert b.group.epoch == epoch + 1
    # They are gone, and there is the next target.
    assert len(b.log) <= before + 2
