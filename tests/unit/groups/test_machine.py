"""What a new coordinator makes of the log."""

from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode, InvariantBroken
from appliance.coordinator.calls import Call
from appliance.groups.config import GroupConfig, group_config
from appliance.wire.messages.list_groups import ListGroupsRequest
from tests.support.group_bench import GroupBench


def test_members_go_on_with_a_new_coordinator() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    bench.fail_over()
    assert bench.state() == "Stable"
    assert bench.heartbeat(leader.member_id, 1) == bench.heartbeat(follower.member_id, 1) == ErrorCode.NONE
    assert bench.answer(bench.sync(follower.member_id, 1)).assignment == follower.member_id.encode()


def test_members_have_one_session_timeout_to_find_it() -> None:
    bench = GroupBench()
    leader, _ = bench.stable_group(2, session_timeout_ms=6_000)
    bench.fail_over()
    bench.advance(5_999)
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.NONE
    bench.advance(1)
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_generation_that_did_not_reach_the_log_is_forgotten() -> None:
    bench = GroupBench()
    leader, follower = bench.stable_group(2)
    calls = [bench.join(leader.member_id), bench.join(follower.member_id)]
    assert {bench.answer(call).generation_id for call in calls} == {2}
    bench.fail_over()
    assert bench.answer(bench.sync(leader.member_id, 2)).error_code == ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(leader.member_id, 1) == ErrorCode.NONE


def test_all_who_wait_are_sent_to_the_new_coordinator() -> None:
    bench = GroupBench()
    leader, _ = bench.stable_group(2)
    joining = bench.join(leader.member_id)
    first = bench.join(group_id="h", version=3)
    second = bench.join(group_id="h", version=3)
    bench.advance(6_000)
    follower = next(bench.answer(call) for call in (first, second) if not bench.answer(call).members)
    syncing = bench.sync(follower.member_id, 1, group_id="h")
    bench.hold = True
    committing, deleting = bench.commit(1, group_id="i"), bench.delete_group("i")
    bench.fail_over()
    assert bench.answer(joining).error_code == bench.answer(syncing).error_code == ErrorCode.NOT_COORDINATOR
    assert bench.answer(committing).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert bench.answer(deleting).results[0].error_code == ErrorCode.NOT_COORDINATOR


def test_what_comes_after_the_end_is_sent_away() -> None:
    bench = GroupBench()
    bench.shard.unload()
    assert bench.commit_error(1) == ErrorCode.NOT_COORDINATOR


def test_a_group_that_is_too_large_by_now_rebalances() -> None:
    bench = GroupBench()
    bench.stable_group(3)
    bench.config = GroupConfig(max_size=2)
    bench.fail_over()
    assert bench.state() == "PreparingRebalance"


def test_the_configuration_is_the_brokers() -> None:
    values = {
        "group.min.session.timeout.ms": 1,
        "group.max.session.timeout.ms": 2,
        "group.initial.rebalance.delay.ms": 3,
        "group.max.size": 4,
        "offset.metadata.max.bytes": 5,
        "offsets.retention.minutes": 6,
        "offsets.retention.check.interval.ms": 7,
    }
    assert group_config(values.__getitem__) == GroupConfig(1, 2, 3, 4, 5, 360_000, 7)


def test_a_request_that_is_not_for_one_group_is_a_mistake_of_ours() -> None:
    bench = GroupBench()
    with pytest.raises(InvariantBroken):
        bench.machine.handle(Call(ListGroupsRequest()), bench.now)
