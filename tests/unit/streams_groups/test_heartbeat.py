"""Members of a group of Kafka Streams join, stay, are fenced, and get the tasks that they are to have."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.streams_groups.config import StreamsGroupConfig
from appliance.streams_groups.stored import MemberState
from appliance.wire.messages.streams_group_heartbeat import Endpoint, TaskOffset
from tests.support.streams_group_bench import StreamsGroupBench, held, subtopology, topology

INTERVAL_MS = 1_000
STATEFUL = subtopology(changelogs=["c"])


def two_members() -> StreamsGroupBench:
    """m1 with all four tasks in epoch 2, and m2 who is to get two of them in epoch 3."""
    b = StreamsGroupBench(t=4)
    assert held(b.came("m1").active_tasks) == {"0": [0, 1, 2, 3]}
    b.advance(INTERVAL_MS)
    assert held(b.came("m2").active_tasks) == {}
    return b


def test_the_first_member_gets_all_tasks() -> None:
    b = StreamsGroupBench(t=4)
    response = b.came("m1")
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m1", 2)
    assert (response.heartbeat_interval_ms, response.status) == (5_000, [])
    assert held(response.active_tasks) == {"0": [0, 1, 2, 3]}
    assert b.group.state_name == "Stable"
    assert b.heard("m1", 2).active_tasks is None


def test_the_first_target_waits_for_more_members() -> None:
    b = StreamsGroupBench(StreamsGroupConfig(), t=4)
    first = b.came("m1")
    assert (first.member_epoch, held(first.active_tasks), [each.status_code for each in first.status or ()]) == (
        1, {}, [5]
    )  # fmt: skip
    b.advance(2_000)
    assert b.came("m2").member_epoch == 1
    b.advance(1_000)
    given = held(b.heard("m1", 1).active_tasks)
    assert given is not None and len(given["0"]) == 2
    assert sorted(len(target.active) for target in b.group.targets.values()) == [2, 2]


def test_a_task_is_handed_over_only_when_its_owner_has_given_it_up() -> None:
    b = two_members()
    asked = b.heard("m1", 2)
    kept = held(asked.active_tasks)
    assert kept is not None and asked.member_epoch == 2 and len(kept["0"]) == 2
    assert b.heard("m2", 3).active_tasks is None
    assert b.heard("m1", 2, {"0": [0, 1, 2, 3]}).member_epoch == 2, "it still has them"
    assert b.heard("m2", 3).active_tasks is None
    assert b.heard("m1", 2, kept).member_epoch == 3
    given = held(b.heard("m2", 3).active_tasks)
    assert given is not None and sorted(kept["0"] + given["0"]) == [0, 1, 2, 3]
    assert b.group.state_name == "Stable"


def test_a_member_whose_answer_was_lost_goes_on_if_it_has_nothing_but_its_own() -> None:
    b = two_members()
    kept = held(b.heard("m1", 2).active_tasks)
    assert kept is not None and b.heard("m1", 2, kept).member_epoch == 3
    assert b.heard("m1", 2, {"0": [0, 1, 2, 3]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert b.heard("m1", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert b.heard("m1", 2, kept).member_epoch == 3
    assert b.heard("m1", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_keeps_what_it_is_to_give_up_is_removed() -> None:
    b = two_members()
    b.heard("m1", 2)
    for _ in range(5):
        b.advance(15_000)
        b.heard("m1", 2)
        b.heard("m2", 3)
    assert list(b.group.members) == ["m2"]
    assert b.group.current_of("m2").assigned.active == {("0", number) for number in range(4)}


def test_members_of_one_process_never_run_a_task_and_keep_its_copy() -> None:
    b = StreamsGroupBench(StreamsGroupConfig(initial_rebalance_delay_ms=0, num_standby_replicas=1), t=4, c=4)
    b.came("m1", STATEFUL, process_id="p")
    b.advance(INTERVAL_MS)
    b.came("m2", STATEFUL, process_id="p")
    assert all(not target.standby for target in b.group.targets.values()), "there is no other process"
    b.advance(INTERVAL_MS)
    b.came("m3", STATEFUL, process_id="q")
    of_p = [b.group.targets["m1"], b.group.targets["m2"]]
    assert not (of_p[0].active | of_p[1].active) & (of_p[0].standby | of_p[1].standby)
    assert not b.group.targets["m3"].active & b.group.targets["m3"].standby
    kept = [task for target in b.group.targets.values() for task in target.standby]
    assert sorted(kept) == [("0", number) for number in range(4)]


def test_topics_that_grow_bring_more_tasks() -> None:
    b = StreamsGroupBench(t=2)
    assert held(b.came("m1").active_tasks) == {"0": [0, 1]}
    b.world.put("t", 3)
    b.advance(INTERVAL_MS)
    grown = b.heard("m1", 2)
    assert (grown.member_epoch, held(grown.active_tasks)) == (3, {"0": [0, 1, 2]})


def test_a_group_waits_for_its_topics_and_says_which() -> None:
    b = StreamsGroupBench(t=2)
    parts = (
        subtopology("0", ["t"], sinks=["r"]),
        subtopology("1", [], repartitions={"r": 0}, changelogs=["c"]),
    )
    waiting = b.came("m1", *parts)
    assert [(each.status_code, each.status_detail) for each in waiting.status or ()] == [
        (3, "Internal topics are missing: r, c")
    ]
    assert [(each.name, each.partitions) for each in b.machine.missing_internal_topics("g")] == [("r", 2), ("c", 2)]
    assert (held(waiting.active_tasks), b.group.state_name) == ({}, "NotReady")
    b.world.put("r", 2)
    b.world.put("c", 2)
    b.advance(INTERVAL_MS)
    ready = b.heard("m1", waiting.member_epoch)
    assert (held(ready.active_tasks), ready.status) == ({"0": [0, 1], "1": [0, 1]}, [])
    assert b.machine.missing_internal_topics("g") == ()


def test_standby_copies_follow_the_groups_config() -> None:
    b = StreamsGroupBench(t=2, c=2)
    b.came("m1", STATEFUL)
    b.advance(INTERVAL_MS)
    b.came("m2", STATEFUL)
    assert sum(len(each.standby) for each in b.group.targets.values()) == 0
    b.world.resource_configs[32, "g"] = {"streams.num.standby.replicas": "1"}
    b.advance(INTERVAL_MS)
    b.heard("m1", 2)
    assert sum(len(each.standby) for each in b.group.targets.values()) == 2
    assert b.group.standby_replicas == 1


def test_another_topology_is_refused() -> None:
    b = StreamsGroupBench(t=2, u=2)
    b.came("m1", subtopology(), topology=topology(subtopology(), epoch=1))
    assert b.came("m2", topology=topology(subtopology("0", ["u"]), epoch=1)).error_code == ErrorCode.INVALID_REQUEST
    stale = b.came("m2", topology=topology(subtopology("0", ["u"]), epoch=0))
    assert (stale.error_code, [each.status_code for each in stale.status or ()]) == (0, [0])


def test_who_asks_all_to_end_is_heard_by_all() -> None:
    b = two_members()
    b.heard("m2", 3, shutdown_application=True)
    assert [each.status_code for each in b.heard("m1", 2).status or ()] == [4]
    b.heard("m1", -1)
    b.heard("m2", -1)
    assert b.came("m3").status == [], "it was the others who ended"


def test_members_hear_where_tasks_can_be_asked_for() -> None:
    b = StreamsGroupBench(t=2)
    b.came("m1", user_endpoint=Endpoint(host="h", port=9))
    told = b.came("m2", endpoint_information_epoch=-1)
    assert told.partitions_by_user_endpoint is not None
    (row,) = told.partitions_by_user_endpoint
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("h", 9)
    assert [(each.topic, each.partitions) for each in row.active_partitions] == [("t", [0, 1])]
    again = b.heard("m2", told.member_epoch, endpoint_information_epoch=told.endpoint_information_epoch)
    assert again.partitions_by_user_endpoint is None


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"task_offsets": [TaskOffset()]}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(subtopology(), subtopology())}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(subtopology(changelogs=["a/b"]))}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(subtopology("0", [], repartitions={"r": 0}))}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(epoch=-1)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], error: ErrorCode) -> None:
    b = StreamsGroupBench(t=2)
    assert b.came("m1", **wrong).error_code == error
    assert "g" not in b.machine.stored


def test_everything_is_known_after_a_restart() -> None:
    b = two_members()
    b.heard("m1", 2)
    before = b.group
    b.fail_over()
    assert b.group == before
    assert b.group.current_of("m1").state is MemberState.UNREVOKED_TASKS
    assert b.heard("m2", 3).error_code == 0


def test_a_group_belongs_to_one_protocol() -> None:
    b = StreamsGroupBench(t=2)
    b.joined("c1")
    assert b.came("m1").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert b.came("m1", group_id="h").error_code == 0
    assert b.joined("c1", group_id="h").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_large_target_is_made_by_a_helper_thread() -> None:
    b = StreamsGroupBench(t=12_000)
    b.hold_jobs = True
    first = b.came("m1")
    assert (first.member_epoch, held(first.active_tasks)) == (1, {})
    b.advance(0)
    (job,) = b.machine.take_jobs()
    b.shard.decide(lambda: b.machine.job_done(job, RuntimeError("full"), b.now), b.now)
    b.heard("m1", 1)
    (job,) = b.machine.take_jobs()
    b.shard.decide(lambda: b.machine.job_done(job, job.run(), b.now), b.now)
    b.advance(0)
    given = held(b.heard("m1", 1).active_tasks)
    assert given == {"0": list(range(12_000))}
