"""Members of the new protocol join, stay, are fenced, and get what they are to have."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.config import ConsumerGroupConfig
from appliance.consumer_groups.stored import MemberState
from tests.support.consumer_group_bench import ConsumerGroupBench

INTERVAL_MS = 1_000


def bench(**topics: int) -> ConsumerGroupBench:
    return ConsumerGroupBench(**(topics or {"t": 4}))


def two_members() -> ConsumerGroupBench:
    """m1 with all four partitions in epoch 2, and m2 who is to get two of them."""
    b = bench()
    assert b.assigned(b.joined("m1")) == {"t": [0, 1, 2, 3]}
    b.advance(INTERVAL_MS)
    assert b.assigned(b.joined("m2")) == {}
    return b


def test_the_first_member_gets_everything_at_once() -> None:
    b = bench()
    response = b.joined("m1")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m1", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert b.assigned(response) == {"t": [0, 1, 2, 3]}
    assert b.group.state_name == "Stable"


def test_an_assignment_that_has_not_changed_is_not_said_again() -> None:
    b = bench()
    b.joined("m1")
    assert b.said("m1", 2).assignment is None


def test_a_member_that_says_everything_is_told_everything() -> None:
    b = bench()
    b.joined("m1")
    said = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    assert b.assigned(b.said("m1", 2, {b.ids["t"]: range(4)}, **said)) == {"t": [0, 1, 2, 3]}


def test_a_partition_is_handed_over_only_when_its_owner_has_given_it_up() -> None:
    b = two_members()
    topic = b.ids["t"]
    assert b.said("m2", 3).assignment is None
    asked = b.said("m1", 2)
    assert (asked.member_epoch, b.assigned(asked)) == (2, {"t": [0, 1]})
    assert b.said("m2", 3).assignment is None
    assert b.said("m1", 2, {topic: [0, 1, 2]}).member_epoch == 2
    assert b.said("m2", 3).assignment is None
    assert b.said("m1", 2, {topic: [0, 1]}).member_epoch == 3
    got = b.said("m2", 3)
    assert (got.member_epoch, b.assigned(got)) == (3, {"t": [2, 3]})
    assert b.group.state_name == "Stable"


def test_targets_follow_each_other_at_their_interval() -> None:
    b = bench()
    b.joined("m1")
    assert b.joined("m2").member_epoch == 2
    assert (b.group.epoch, b.group.assignment_epoch, b.group.state_name) == (3, 2, "Assigning")
    b.advance(INTERVAL_MS)
    assert (b.group.epoch, b.group.assignment_epoch, b.group.state_name) == (3, 3, "Reconciling")


def test_the_interval_of_one_group_can_be_set() -> None:
    b = bench()
    b.world.resource_configs[32, "g"] = {"consumer.assignment.interval.ms": "0"}
    b.joined("m1")
    assert b.joined("m2").member_epoch == 3


@pytest.mark.parametrize(
    ("entries", "heartbeat_ms", "session_ms"),
    [
        ({}, 5_000, 45_000),
        ({"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}, 7_000, 50_000),
        ({"consumer.heartbeat.interval.ms": "1", "consumer.session.timeout.ms": "999999"}, 5_000, 60_000),
    ],
)
def test_times_of_one_group_can_be_set_within_limits(
    entries: dict[str, str], heartbeat_ms: int, session_ms: int
) -> None:
    b = bench()
    b.world.resource_configs[32, "g"] = entries
    assert b.joined("m1").heartbeat_interval_ms == heartbeat_ms
    b.advance(session_ms - 1)
    assert "m1" in b.group.members
    b.advance(1)
    assert b.group.is_empty


def test_an_answer_that_was_lost_is_given_again() -> None:
    b = two_members()
    topic = b.ids["t"]
    b.said("m1", 2)
    assert b.said("m1", 2, {topic: [0, 1]}).member_epoch == 3
    assert b.said("m1", 2, {topic: [0, 1]}).member_epoch == 3


def test_a_lost_answer_to_a_join_is_given_again() -> None:
    b = bench()
    b.joined("m1")
    again = b.joined("m1")
    assert (again.member_epoch, b.assigned(again)) == (2, {"t": [0, 1, 2, 3]})
    assert b.group.epoch == 2


@pytest.mark.parametrize("owned", [None, {"t": [0, 1, 2]}])
def test_who_is_behind_and_may_have_more_is_fenced(owned: dict[str, list[int]] | None) -> None:
    b = two_members()
    b.said("m1", 2)
    b.said("m1", 2, {b.ids["t"]: [0, 1]})
    reported = None if owned is None else {b.ids[name]: numbers for name, numbers in owned.items()}
    assert b.said("m1", 2, reported).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_who_is_ahead_is_fenced() -> None:
    b = bench()
    b.joined("m1")
    assert b.said("m1", 3).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_strangers_are_told_so() -> None:
    b = bench()
    assert b.said("m1", 2).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    b.joined("m1")
    assert b.said("m2", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


FIRST: dict[str, Any] = {"rebalance_timeout_ms": 1_000, "subscribed_topic_names": ["t"]}


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "nope"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "["}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_requests_that_make_no_sense(said: dict[str, Any], error: ErrorCode) -> None:
    b = bench()
    given = {"member_id": "m1", "epoch": 0, "owned": {}, **FIRST, **said}
    answer = b.said(given.pop("member_id"), given.pop("epoch"), given.pop("owned"), **given)
    assert (answer.error_code, bool(answer.error_message)) == (error, True)
    assert not b.log


def test_a_member_of_version_0_without_an_id_is_given_one() -> None:
    b = bench()
    response = b.answer(b.beat("", 0, {}, version=0, **FIRST))
    assert len(response.member_id) == 22
    assert list(b.group.members) == [response.member_id]


def test_a_full_group_takes_nobody_in() -> None:
    b = ConsumerGroupBench(ConsumerGroupConfig(max_size=1), t=4)
    b.joined("m1")
    assert b.joined("m2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b.joined("m1").error_code == 0


def test_who_reads_something_else_gives_up_and_gets() -> None:
    b = bench(t=2, u=2)
    b.joined("m1", "t")
    b.advance(INTERVAL_MS)
    changed = b.said("m1", 2, subscribed_topic_names=["u"])
    assert (changed.member_epoch, b.assigned(changed)) == (2, {})
    got = b.said("m1", 2, {})
    assert (got.member_epoch, b.assigned(got)) == (3, {"u": [0, 1]})


def test_new_partitions_are_assigned() -> None:
    b = bench(t=2)
    b.joined("m1")
    b.advance(INTERVAL_MS)
    b.world.put("t", 3)
    assert b.assigned(b.said("m1", 2)) == {"t": [0, 1, 2]}


def test_a_topic_that_comes_later_is_assigned_then() -> None:
    b = bench(other=1)
    response = b.joined("m1", "t")
    assert (response.member_epoch, b.assigned(response)) == (2, {})
    b.advance(INTERVAL_MS)
    b.world.put("t", 2)
    assert b.assigned(b.said("m1", 2)) == {"t": [0, 1]}


def test_a_topic_that_is_deleted_and_made_again_is_another_one() -> None:
    b = bench(t=2)
    old = b.ids["t"]
    b.joined("m1")
    b.advance(INTERVAL_MS)
    b.world.remove("t")
    assert b.said("m1", 2).member_epoch == 2
    assert b.said("m1", 2, {}).member_epoch == 3
    assert old not in b.group.current["m1"].assigned
    b.advance(INTERVAL_MS)
    b.world.put("t", 1)
    assert b.assigned(b.said("m1", 3)) == {"t": [0]}


def test_what_does_not_concern_the_group_changes_nothing() -> None:
    b = bench()
    b.joined("m1")
    b.world.put("other", 9)
    b.said("m1", 2)
    assert b.group.epoch == 2


def test_members_choose_the_assignor_by_majority() -> None:
    b = bench(t=4, u=4)
    b.joined("m1", "t", "u", server_assignor="range")
    b.advance(INTERVAL_MS)
    b.joined("m2", "t", "u", server_assignor="range")
    topics = b.ids["t"], b.ids["u"]
    assert b.group.targets["m1"] == dict.fromkeys(sorted(topics), (0, 1))
    assert b.machine.describe_consumer_group("g").assignor_name == "range"


def test_topics_are_subscribed_to_by_regular_expression() -> None:
    b = bench(logs=1, other=1)
    response = b.joined("m1", subscribed_topic_names=None, subscribed_topic_regex="log.*")
    assert (response.member_epoch, b.assigned(response)) == (1, {})
    assert b.assigned(b.said("m1", 1)) == {"logs": [0]}
    b.world.put("login", 1)
    b.advance(10_000)
    assert b.said("m1", 2).member_epoch == 2
    b.advance(INTERVAL_MS)
    assert b.assigned(b.said("m1", 2)) == {"logs": [0], "login": [0]}


def test_the_topics_of_an_expression_that_nobody_has_are_forgotten() -> None:
    b = bench()
    b.joined("m1", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert list(b.group.regexes) == ["t.*"]
    b.joined("m2", subscribed_topic_names=None, subscribed_topic_regex="x")
    b.said("m2", b.group.current["m2"].epoch, subscribed_topic_regex="t.*")
    assert list(b.group.regexes) == ["t.*"]
    b.said("m1", -1)
    b.said("m2", -1)
    assert list(b.group.regexes) == []


def test_a_large_target_is_made_by_a_helper_thread() -> None:
    b = bench(t=6_000)
    b.hold_jobs = True
    response = b.joined("m1")
    assert (response.member_epoch, b.assigned(response)) == (1, {})
    b.advance(0)
    assert b.said("m1", 1).assignment is None
    b.hold_jobs = False
    b.pump()
    assert b.group.assignment_epoch == b.group.epoch
    assert len(b.assigned(b.said("m1", 1))["t"]) == 6_000


def test_a_target_that_comes_too_late_is_made_again() -> None:
    b = bench(t=6_000)
    b.hold_jobs = True
    b.joined("m1")
    b.advance(0)
    b.joined("m2")
    b.hold_jobs = False
    b.advance(INTERVAL_MS)
    assert b.group.assignment_epoch == b.group.epoch
    assert sorted(len(target[b.ids["t"]]) for target in b.group.targets.values()) == [3_000, 3_000]


def test_nothing_is_said_before_it_is_in_the_log() -> None:
    b = bench()
    b.hold = True
    call = b.joins("m1")
    assert b.is_waiting(call)
    second = b.joins("m2")
    assert b.is_waiting(second)
    b.release()
    assert b.assigned(b.answer(call)) == {"t": [0, 1, 2, 3]}
    assert b.answer(second).error_code == 0


def test_a_join_that_cannot_be_written_has_not_happened() -> None:
    b = bench()
    b.hold = True
    call = b.joins("m1")
    b.fail_held(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert b.answer(call).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not b.machine.stored.consumer_groups
    b.hold = False
    assert b.joined("m1").error_code == 0


def test_the_next_coordinator_knows_everything() -> None:
    b = two_members()
    b.said("m1", 2)
    before = b.machine.stored
    b.fail_over()
    assert b.machine.stored == before
    assert b.group.current["m1"].state is MemberState.UNREVOKED_PARTITIONS
    b.said("m1", 2, {b.ids["t"]: [0, 1]})
    assert b.assigned(b.said("m2", 3)) == {"t": [2, 3]}


def test_heartbeats_of_a_stable_group_write_nothing() -> None:
    b = bench()
    b.joined("m1")
    size = len(b.log)
    for _ in range(5):
        b.said("m1", 2)
    assert len(b.log) == size
