"""Cases about groups of Kafka Streams (KIP-1071)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.describe_groups import DescribeGroupsRequest
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.list_groups import ListGroupsRequest
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from appliance.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from appliance.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from appliance.wire.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    TaskOffset,
    Topology,
)
from tests.support.differential.groups import join as classic_join
from tests.support.differential.sides import CreatedTopic, Side, case
from tests.support.streams_group_bench import subtopology, topology

PATIENCE_S = 30.0
GROUP_RESOURCE = 32
AT_ONCE = {"streams.initial.rebalance.delay.ms": "0", "streams.assignment.interval.ms": "0"}


def beat(group: str, member: str, epoch: int, **said: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **said)


def first(group: str, member: str, what: Topology | None, **said: Any) -> StreamsGroupHeartbeatRequest:
    given: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "topology": what,
        "process_id": f"process-{member}",
        "client_tags": [],
        **having(),
    }
    return beat(group, member, 0, **{**given, **said})


def having(active: Iterable[int] = (), standby: Iterable[int] = (), name: str = "0") -> dict[str, Any]:
    """What a member says that it has of one subtopology."""

    def rows(partitions: Iterable[int]) -> list[TaskIds]:
        numbers = list(partitions)
        return [TaskIds(subtopology_id=name, partitions=numbers)] if numbers else []

    return {"active_tasks": rows(active), "standby_tasks": rows(standby), "warmup_tasks": []}


def reading(*topics: CreatedTopic | str, **options: Any) -> Topology:
    names = [each if isinstance(each, str) else each.name for each in topics]
    return topology(subtopology("0", names, **options))


def configure(side: Side, group: str, **configs: str) -> None:
    entries = AT_ONCE | {name.replace("_", "."): value for name, value in configs.items()}
    rows = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in entries.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=rows)
    answer = side.set_up(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, (side.name, answer)


def ready(side: Side, what: Topology, *groups: str, **configs: str) -> None:
    """Coordinators are there and have heard of the topics and of the groups' configs; of the groups nothing is left."""
    for group in groups:
        side.find_coordinator(group)
        configure(side, group, **configs)
        deadline = time.monotonic() + PATIENCE_S
        epoch = 0
        while True:
            request = first(group, "probe", what) if epoch == 0 else beat(group, "probe", epoch)
            answer = side.set_up(request)
            epoch = 0 if answer.error_code else answer.member_epoch
            if answer.active_tasks:
                break
            assert time.monotonic() < deadline, (side.name, answer)
            time.sleep(0.05)
        side.set_up(beat(group, "probe", -1))
        side.set_up(DeleteGroupsRequest(groups_names=[group]))


def describe(side: Side, label: str, group: str) -> None:
    side.ask(label, StreamsGroupDescribeRequest(group_ids=[group]), 0)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_wrong_requests(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, good = side.named("g"), reading(topic)
    side.find_coordinator(group)
    side.ask("no group", first("", "m1", good))
    side.ask("no member", first(group, "", good))
    side.ask("an empty rack", first(group, "m1", good, rack_id=""))
    side.ask("a static member", first(group, "m1", good, instance_id="i1"))
    side.ask("no timeout", first(group, "m1", good, rebalance_timeout_ms=-1))
    side.ask("no topology", first(group, "m1", None))
    side.ask("no active tasks", first(group, "m1", good, active_tasks=None))
    side.ask("active tasks", first(group, "m1", good, **having([0])))
    side.ask("standby tasks", first(group, "m1", good, **having([], [0])))
    side.ask("an epoch that is none", beat(group, "m1", -3))
    side.ask("leaves for a while", beat(group, "m1", -2))
    side.ask("a regular expression", first(group, "m1", _with_regex()))
    side.ask("task offsets", first(group, "m1", good, task_offsets=[TaskOffset(subtopology_id="0")]))
    side.ask("a topic's name that is none", first(group, "m1", reading(topic, changelogs=["a/b"])))
    side.ask("nobody writes to it", first(group, "m1", topology(subtopology("0", [], repartitions={"r": 0}))))
    side.ask("no such group", beat(side.named("none"), "m1", 1))
    side.ask("leaves no such group", beat(side.named("none"), "m1", -1))


def _with_regex() -> Topology:
    part = subtopology("0", [])
    part.source_topic_regex = ["a.*"]
    return topology(part)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_comes_and_goes(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, good = side.named("g"), reading(topic)
    ready(side, good, group)
    side.ask("joins", first(group, "m1", good, user_endpoint=Endpoint(host="h", port=9)))
    describe(side, "described", group)
    side.ask("nothing new", beat(group, "m1", 2))
    side.ask("asks where", beat(group, "m1", 2, endpoint_information_epoch=-1))
    side.ask("an epoch above", beat(group, "m1", 3))
    side.ask("a stranger", beat(group, "m2", 2))
    side.ask("only active", beat(group, "m1", 2, active_tasks=[]))
    side.ask("a topology", beat(group, "m1", 2, topology=good))
    side.ask("comes again", first(group, "m1", good, user_endpoint=Endpoint(host="h", port=9)))
    side.ask("another process", first(group, "m1", good, process_id="other"))
    side.ask("asks all to end", beat(group, "m1", 3, shutdown_application=True))
    side.ask("hears of it", beat(group, "m1", 3))
    side.ask("another topology", first(group, "m2", reading("other")))
    side.ask("in use", DeleteGroupsRequest(groups_names=[group]), 2)
    side.ask("leaves", beat(group, "m1", -1))
    side.ask("leaves again", beat(group, "m1", -1))
    describe(side, "empty", group)
    side.ask("deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    describe(side, "gone", group)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_hands_over(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, good = side.named("g"), reading(topic)
    ready(side, good, group)
    side.ask("has all", first(group, "m1", good, user_endpoint=Endpoint(host="h", port=9)))
    side.ask("is to get one", first(group, "m2", good))
    side.ask("has to give up", beat(group, "m1", 2))
    side.ask("has not yet", beat(group, "m1", 2, **having([0, 1])))
    side.ask("waits", beat(group, "m2", 3))
    side.ask("gave up", beat(group, "m1", 2, **having([0])))
    side.ask("the answer was lost", beat(group, "m1", 2, **having([0])))
    side.ask("lost, and it does not say", beat(group, "m1", 2))
    side.ask("lost, and it has too much", beat(group, "m1", 2, **having([0, 1])))
    side.ask("gets", beat(group, "m2", 3))
    side.ask("says all", beat(group, "m1", 3, rebalance_timeout_ms=60_000, **having([0])))
    describe(side, "stable", group)
    side.ask("one leaves", beat(group, "m2", -1))
    side.ask("has all again", beat(group, "m1", 3))


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_with_standby_copies(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    side.new_topic("changelog", partitions=2, cleanup_policy="compact")
    group, good = side.named("g"), reading(topic, changelogs=[side.named("changelog")])
    ready(side, good, group, streams_num_standby_replicas="1")
    side.ask("alone", first(group, "m1", good))
    side.ask("keeps a copy", first(group, "m2", good))
    side.ask("has to give up", beat(group, "m1", 2))
    side.ask("gave up", beat(group, "m1", 2, **having([0])))
    side.ask("gets", beat(group, "m2", 3, **having([], [0])))
    side.ask("keeps one, too", beat(group, "m1", 3))
    describe(side, "stable", group)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_waits_for_topics(side: Side) -> None:
    topic, other = side.new_topic(partitions=2), side.new_topic("other", partitions=3)
    unequal, missing, internal = side.named("u"), side.named("m"), side.named("i")
    ready(side, reading(topic, other), unequal, missing, internal)
    side.ask("unequal", first(unequal, "m1", reading(topic, other, together=[([0, 1], [])])))
    describe(side, "not ready", unequal)
    side.ask("a source is missing", first(missing, "m1", reading(side.named("none"))))
    made = topology(
        subtopology("0", [topic.name], sinks=[side.named("r")]),
        subtopology("1", [], repartitions={side.named("r"): 0}, changelogs=[side.named("c")]),
    )
    side.ask("internal ones are missing", first(internal, "m1", made))
    for name in ("r", "c"):
        side.wait_for_leaders(side.named(name), 2)
    deadline = time.monotonic() + PATIENCE_S
    while side.set_up(beat(internal, "m1", 2)).member_epoch == 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    describe(side, "all there", internal)


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_waits_for_members(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, good = side.named("g"), reading(topic)
    ready(side, good, group)
    configure(side, group, streams_initial_rebalance_delay_ms="600000")
    time.sleep(1)
    side.ask("waits", first(group, "m1", good))
    side.ask("waits, too", first(group, "m2", good))
    side.ask("still", beat(group, "m1", 1))
    describe(side, "waiting", group)


@case(ApiKey.STREAMS_GROUP_DESCRIBE, is_for_compat=True)
def streams_group_described(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, classic, good = side.named("g"), side.named("classic"), reading(topic)
    ready(side, good, group)
    side.find_coordinator(classic)
    side.set_up(first(group, "m1", good, rack_id="r1"))
    side.set_up(classic_join(classic, group_instance_id="i1"))
    side.ask("one", StreamsGroupDescribeRequest(group_ids=[group]))
    side.ask("with what may be done", StreamsGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=True
    ))  # fmt: skip
    side.ask("a classic one", StreamsGroupDescribeRequest(group_ids=[classic]))
    side.ask("none", StreamsGroupDescribeRequest(group_ids=[side.named("none")]))
    side.ask("no name", StreamsGroupDescribeRequest(group_ids=[""]))
    side.ask("nothing", StreamsGroupDescribeRequest(group_ids=[]))
    side.ask("as a classic one", DescribeGroupsRequest(groups=[group]), 6)
    side.ask("as a consumer group", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    listed = side.set_up(ListGroupsRequest(types_filter=["Streams"]))
    rows = [row for row in listed.groups if row.group_id == group]
    assert [(row.protocol_type, row.group_state, row.group_type) for row in rows] == [("streams", "Stable", "streams")]


@case(ApiKey.STREAMS_GROUP_HEARTBEAT, is_for_compat=True)
def streams_group_and_other_kinds(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, consumers, good = side.named("g"), side.named("c"), reading(topic)
    ready(side, good, group, consumers)
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic.name], "topic_partitions": []}

    def consumer(name: str, epoch: int = 0) -> ConsumerGroupHeartbeatRequest:
        said = joins if epoch == 0 else {}
        return ConsumerGroupHeartbeatRequest(group_id=name, member_id="c1", member_epoch=epoch, **said)

    side.set_up(first(group, "m1", good))
    side.ask("a consumer", consumer(group), 1)
    side.ask("a classic member", classic_join(group), 3)
    side.ask("a classic heartbeat", HeartbeatRequest(group_id=group, generation_id=2, member_id="m1"), 4)
    side.ask("a classic member leaves", LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id="m1")]
    ), 5)  # fmt: skip
    side.set_up(consumer(consumers))
    side.ask("in a consumer group", first(consumers, "m1", good))
    side.set_up(consumer(consumers, -1))
    side.ask("in an empty consumer group", first(consumers, "m1", good))
    side.set_up(beat(group, "m1", -1))
    side.ask("a consumer in an empty one", consumer(group), 1)
    side.ask("a classic member in an empty one", classic_join(group), 3)


@case(ApiKey.OFFSET_COMMIT, versions=range(8, 10), is_for_compat=True)
def streams_group_offsets(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, good = side.named("g"), reading(topic)
    ready(side, good, group)

    def commit(label: str, member: str, epoch: int) -> None:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        side.ask(label, OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member,
            topics=[OffsetCommitRequestTopic(name=topic.name, partitions=rows)],
        ))  # fmt: skip

    def fetch(label: str, member: str | None, epoch: int) -> None:
        part = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=None)
        side.ask(label, OffsetFetchRequest(groups=[part]), 9)

    side.ask("joins", first(group, "m1", good), 0)
    side.set_up(first(group, "m2", good))
    side.set_up(beat(group, "m1", 2))
    side.set_up(beat(group, "m1", 2, **having([0])))
    commit("in its epoch", "m1", 3)
    commit("in an earlier one", "m1", 2)
    commit("in one before it had it", "m1", 1)
    commit("in a later one", "m1", 4)
    commit("a stranger", "m3", 3)
    commit("nobody", "", -1)
    fetch("by nobody", None, -1)
    fetch("in its epoch", "m1", 3)
    fetch("in an earlier one, fetched", "m1", 2)
    fetch("by a stranger", "m3", 3)
    side.ask("of a topic in use", OffsetDeleteRequest(group_id=group, topics=[
        OffsetDeleteRequestTopic(name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ]), 0)  # fmt: skip
