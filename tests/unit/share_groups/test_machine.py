from __future__ import annotations

from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.share_groups.config import ShareGroupConfig
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.share_group_bench import ShareGroupBench, owned

SESSION_MS = 45_000


def test_whoever_joins_has_partitions_at_once() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 2)
    answer = bench.heartbeat(names=["t"])
    assert owned(answer) == {topic: [0, 1]}
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, 5_000)
    assert [(len(job.places), job.state_epoch) for job in bench.persisted] == [(2, 1)]
    again = bench.heartbeat(epoch=2)
    assert (again.member_epoch, again.assignment) == (2, None)


def test_whoever_says_its_topics_again_is_told_what_it_has() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 2)
    bench.heartbeat("a", names=["t"])
    lost = bench.heartbeat("b", names=["t"])
    assert owned(bench.heartbeat("b", lost.member_epoch, names=["t"])) == owned(lost) != {topic: []}


def test_members_share_partitions_as_they_come_and_go() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 2)
    one = bench.heartbeat("a", names=["t"])
    other = bench.heartbeat("b", names=["t"])
    assert len(owned(other)[topic]) == 1
    kept = bench.heartbeat("a", one.member_epoch)
    assert sorted(owned(kept)[topic] + owned(other)[topic]) == [0, 1]
    third = bench.heartbeat("c", names=["t"])
    assert len(owned(third)[topic]) == 1
    assert bench.heartbeat("b", -1).member_epoch == -1
    assert bench.heartbeat("c", -1).member_epoch == -1
    bench.pass_time(1_000)
    assert owned(bench.heartbeat("a", kept.member_epoch)) == {topic: [0, 1]}


def test_new_partitions_are_given_out_when_their_state_has_begun() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    first = bench.heartbeat(names=["t", "later"])
    bench.world.put("t", 3)
    later = bench.world.put("later", 1)
    answer = bench.heartbeat(epoch=first.member_epoch)
    assert {sum(map(len, owned(answer).values())), len(owned(answer)[later])} == {4, 1}


def test_while_the_share_coordinator_fails_members_have_nothing_and_it_is_asked_again() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 1)
    bench.persist_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = bench.heartbeat(names=["t"])
    assert owned(answer) == {}
    bench.persist_error = ErrorCode.NONE
    assert owned(bench.heartbeat(epoch=answer.member_epoch)) == {topic: [0]}


def test_while_the_share_coordinator_is_asked_nobody_else_asks_until_it_takes_too_long() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    bench.holds_jobs = True
    assert bench.heartbeat("a", names=["t"]) is None
    assert owned(bench.heartbeat("b", names=["t"])) == {}
    bench.pass_time(ShareGroupConfig().initialize_retry_interval_ms)
    assert bench.heartbeat("b", names=["t"]) is None


def test_who_is_silent_is_removed_and_who_is_behind_joins_anew() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    epoch = bench.heartbeat("a", names=["t"]).member_epoch
    bench.heartbeat("b", names=["t"])
    bench.pass_time(SESSION_MS - 1)
    assert bench.heartbeat("a", epoch).error_code == 0
    bench.pass_time(1)
    assert bench.heartbeat("b", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    now = bench.heartbeat("a", epoch).member_epoch
    assert bench.heartbeat("a", now + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.heartbeat("a", 0, ["t"]).error_code == 0


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"names": None}, ErrorCode.INVALID_REQUEST),
        ({"names": []}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_heartbeats_that_cannot_be_are_refused(values: dict[str, Any], error: ErrorCode) -> None:
    answer = ShareGroupBench().heartbeat(**{"names": ["t"], **values})
    assert answer.error_code == error
    assert answer.error_message


def test_a_group_has_no_more_members_than_it_may() -> None:
    bench = ShareGroupBench(ShareGroupConfig(max_size=1))
    bench.heartbeat("a", names=["t"])
    assert bench.heartbeat("b", names=["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_id_belongs_to_one_kind_of_group() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    bench.heartbeat(names=["t"])
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert bench.submit(consumer).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    consumer.group_id = "other"
    assert bench.submit(consumer).error_code == 0
    assert bench.heartbeat(group_id="other", names=["t"]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    listed = {(each.group_id, each.group_type) for each in bench.machine.list_groups([], [])}
    assert listed == {("g", "share"), ("other", "consumer")}
    assert [each.group_id for each in bench.machine.list_groups(["stable"], ["Share"])] == ["g"]


def test_the_next_coordinator_goes_on_from_the_log() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 2)
    epoch = bench.heartbeat(names=["t"]).member_epoch
    before = bench.machine.context.stored.groups
    bench.load()
    assert bench.machine.context.stored.groups == before
    assert bench.heartbeat(epoch=epoch).error_code == 0
    assert owned(bench.heartbeat(names=["t"])) == {topic: [0, 1]}
    bench.pass_time(SESSION_MS)
    assert bench.machine.describe_share_group("g").group_state == "Empty"


def test_a_group_is_deleted_with_its_states_once_it_is_empty() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 2)
    bench.heartbeat(names=["t"])
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert bench.submit(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    bench.heartbeat(epoch=-1)
    bench.persist_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.submit(delete).results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.persist_error = ErrorCode.NONE
    assert bench.submit(delete).results[0].error_code == 0
    assert [(each.is_beginning, len(each.places)) for each in bench.persisted[-2:]] == [(False, 2), (False, 2)]
    assert bench.machine.describe_share_group("g").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    bench.load()
    assert bench.machine.context.stored.groups == {}


def test_offsets_are_set_in_a_new_epoch_of_an_empty_group() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 1)
    bench.heartbeat(names=["t"])
    rows = [AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=7) for index in (0, 5)]
    alter = AlterShareGroupOffsetsRequest(
        group_id="g", topics=[AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=rows)]
    )
    assert bench.submit(alter).error_code == ErrorCode.NON_EMPTY_GROUP
    bench.heartbeat(epoch=-1)
    epoch = bench.machine.describe_share_group("g").group_epoch
    (answer,) = bench.submit(alter).responses
    assert [each.error_code for each in answer.partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    job = bench.persisted[-1]
    assert [(each.topic_id, each.partition, each.start_offset) for each in job.places] == [(topic, 0, 7)]
    assert job.state_epoch == epoch + 1
    alter.group_id = ""
    assert bench.submit(alter).error_code == ErrorCode.INVALID_GROUP_ID


def test_offsets_may_be_set_before_the_first_member_comes() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 1)
    rows = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)]
    alter = AlterShareGroupOffsetsRequest(
        group_id="g", topics=[AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=rows)]
    )
    (answer,) = bench.submit(alter).responses
    assert [each.error_code for each in answer.partitions] == [0]
    described = bench.machine.describe_share_group("g")
    assert (described.error_code, described.group_state, described.members) == (0, "Empty", [])
    assert bench.machine.known_state("g").initialized == {topic: ("t", (0,))}


def test_offsets_that_a_group_has_not_are_not_deleted() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    bench.world.put("other", 1)
    bench.heartbeat(names=["t"])
    bench.heartbeat(epoch=-1)
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "other", "missing")]
    answer = bench.submit(DeleteShareGroupOffsetsRequest(group_id="g", topics=rows))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in answer.responses] == [0, unknown, unknown]


def test_with_a_topic_its_states_go() -> None:
    bench = ShareGroupBench()
    topic = bench.world.put("t", 2)
    bench.heartbeat(names=["t"])
    bench.world.remove("t")
    bench.shard.decide(lambda: bench.machine.topics_deleted([("t", topic)]), bench.now)
    bench.settle()
    assert (bench.persisted[-1].is_beginning, len(bench.persisted[-1].places)) == (False, 2)
    known = bench.machine.known_state("g")
    assert known is not None
    assert not (known.initialized or known.initializing or known.deleting)


def test_what_was_to_end_when_the_coordinator_went_is_ended_by_the_next_one() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    bench.heartbeat(names=["t"])
    bench.heartbeat(epoch=-1)
    bench.holds_jobs = True
    assert bench.submit(DeleteShareGroupOffsetsRequest(group_id="g", topics=[])).error_code == 0
    assert bench.submit(DeleteGroupsRequest(groups_names=["g"])) is None
    bench.shard.unload()
    (answer,) = bench.shard.take_answers()
    assert answer.response.results[0].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    bench.holds_jobs = False
    bench._held = []
    bench.load()
    bench.settle()
    known = bench.machine.known_state("g")
    assert known is not None and not known.deleting


def test_a_heartbeat_that_waits_is_sent_away_when_the_coordinator_goes() -> None:
    bench = ShareGroupBench()
    bench.world.put("t", 1)
    bench.holds_jobs = True
    assert bench.heartbeat(names=["t"]) is None
    bench.shard.unload()
    (answer,) = bench.shard.take_answers()
    assert answer.response.error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    request = ShareGroupHeartbeatRequest(group_id="g", member_id="m")
    bench.shard.submit(Call(request), bench.now)
    assert bench.shard.take_answers()[0].response.error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
