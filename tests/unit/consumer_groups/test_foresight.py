"""Members ask while what was decided before is on its way into the log."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.consumer_group_bench import ConsumerGroupBench


def bench_with_a_member() -> ConsumerGroupBench:
    b = ConsumerGroupBench(ConsumerGroupConfig(assignment_interval_ms=0), t=6)
    b.joined("m1")
    return b


def test_members_who_join_at_once_share_one_batch() -> None:
    b = bench_with_a_member()
    before = len(b.log)
    b.hold = True
    calls = [b.joins(f"m{number}") for number in range(2, 7)]
    assert len(b.held) == 1
    assert all(b.is_waiting(call) for call in calls)
    assert list(b.group.members) == ["m1"]
    b.release()
    assert [b.answer(call).member_epoch for call in calls] == [3, 4, 5, 6, 7]
    # The first one's; then the others', which had to wait for that.
    assert len(b.log) == before + 2
    assert (len(b.group.members), b.group.epoch, b.group.assignment_epoch) == (6, 7, 7)


def test_the_next_coordinator_finds_what_was_foreseen() -> None:
    b = bench_with_a_member()
    b.hold = True
    for number in range(2, 7):
        b.joins(f"m{number}")
    b.beat("m1", 2)
    b.release()
    before = b.machine.stored
    b.fail_over()
    assert b.machine.stored == before


def test_whoever_only_looks_sees_what_is_committed() -> None:
    b = bench_with_a_member()
    b.hold = True
    b.joins("m2")
    b.joins("m3")
    described = b.machine.describe_consumer_group("g")
    assert ([each.member_id for each in described.members], described.group_epoch) == (["m1"], 2)


def test_what_was_decided_upon_a_write_that_fails_is_refused_and_forgotten() -> None:
    b = bench_with_a_member()
    b.hold = True
    calls = [b.joins("m2"), b.joins("m3"), b.beat("m1", 2)]
    b.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {b.answer(call).error_code for call in calls} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    b.release()
    assert list(b.group.members) == ["m1"]
    assert b.said("m1", 2).member_epoch == 2
    assert b.joined("m2").member_epoch == 3


def test_a_topic_that_grew_is_seen_after_the_write_about_it_failed() -> None:
    b = bench_with_a_member()
    b.world.put("t", 8)
    b.hold = True
    b.beat("m1", 2)
    b.beat("m1", 2)
    b.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    b.release()
    assert b.assigned(b.said("m1", 2)) == {"t": list(range(8))}


def test_a_member_that_leaves_and_is_back_before_that_is_written_is_missed_when_it_dies() -> None:
    b = bench_with_a_member()
    b.joined("m2")
    b.hold = True
    b.beat("m2", -1)
    b.joins("m2")
    b.release()
    assert "m2" in b.group.members
    for _ in range(50):
        b.advance(1_000)
        b.said("m1", b.group.current_of("m1").epoch)
    assert "m2" not in b.group.members


def test_offsets_are_committed_while_members_come() -> None:
    b = bench_with_a_member()
    b.hold = True
    b.joins("m2")
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [OffsetCommitRequestTopic(name="t", topic_id=b.ids["t"], partitions=[row])]
    commits = {
        member_id: b.submit(
            OffsetCommitRequest(group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=topics),
            9,
        )
        for member_id, epoch in (("m1", 2), ("m2", 3), ("m3", 3))
    }
    assert all(b.is_waiting(call) for call in commits.values())
    b.release()
    errors = [b.answer(call).topics[0].partitions[0].error_code for call in commits.values()]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_that_ends_is_not_foreseen() -> None:
    b = bench_with_a_member()
    b.hold = True
    left, comes = b.beat("m1", -1), b.joins("m2")
    b.release()
    assert (b.answer(left).error_code, b.answer(comes).error_code) == (0, 0)
    assert list(b.group.members) == ["m2"]
