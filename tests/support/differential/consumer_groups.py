"""Cases about groups of the new protocol (KIP-848), and classic members in them."""

from __future__ import annotations

import time
import uuid
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.describe_groups import DescribeGroupsRequest
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from appliance.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from appliance.wire.messages.sync_group import SyncGroupRequest
from tests.support.differential.groups import join as classic_join
from tests.support.differential.sides import CreatedTopic, Side, case

PATIENCE_S = 30.0
INTERVAL_S = 1.1
"""After this a new target need not wait for the interval since the last one."""
DESCRIBED = 1
CLASSIC_JOIN = 3


def beat(group: str, member: str, epoch: int, **said: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **said)


def first(group: str, member: str, *topics: str, **said: Any) -> ConsumerGroupHeartbeatRequest:
    given = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": [], **said}
    return beat(group, member, 0, **given)


def owned(topic: CreatedTopic | uuid.UUID, *partitions: int) -> list[TopicPartitions]:
    topic_id = topic if isinstance(topic, uuid.UUID) else topic.topic_id
    return [TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def ready(side: Side, group: str, topic: CreatedTopic) -> None:
    """The group's coordinator is there and has heard of the topic: else it assigns nothing, an epoch later all.

    Of the group itself nothing is left.
    """
    side.find_coordinator(group)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = side.set_up(first(group, "probe", topic.name))
        side.set_up(beat(group, "probe", -1))
        side.set_up(DeleteGroupsRequest(groups_names=[group]))
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return
        assert time.monotonic() < deadline, (side.name, answer)
        time.sleep(0.05)


def until_epoch(side: Side, group: str, member: str, epoch: int, wanted: int, **said: Any) -> Any:
    """Heartbeats of a member until its epoch is the wanted one: targets follow each other at an interval."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = side.set_up(beat(group, member, epoch, **said))
        if answer.member_epoch == wanted or answer.error_code:
            return answer
        epoch = answer.member_epoch
        assert time.monotonic() < deadline, (side.name, answer)
        time.sleep(0.05)


def describe(side: Side, label: str, *groups: str) -> None:
    side.ask(label, ConsumerGroupDescribeRequest(group_ids=list(groups)), DESCRIBED)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_joins(side: Side) -> None:
    topic = side.new_topic(partitions=3)
    group = side.named("g")
    ready(side, group, topic)
    side.ask("unknown group", beat(group, "m1", 1))
    side.ask("unknown group left", beat(group, "m1", -1))
    side.ask("joins", first(group, "m1", topic.name))
    side.ask("joins again", first(group, "m1", topic.name))
    side.ask("stays", beat(group, "m1", 2))
    side.ask("says all", beat(
        group, "m1", 2, rebalance_timeout_ms=1_000, subscribed_topic_names=[topic.name],
        topic_partitions=owned(topic, 0, 1, 2),
    ))  # fmt: skip
    side.ask("behind", beat(group, "m1", 1))
    side.ask("ahead", beat(group, "m1", 3))
    side.ask("a stranger", beat(group, "m2", 2))
    side.ask("a stranger leaves", beat(group, "m2", -1))
    describe(side, "described", group)
    side.ask("leaves", beat(group, "m1", -1))
    describe(side, "empty", group)
    side.ask("no classic one", DescribeGroupsRequest(groups=[group]), 6)
    side.ask("nor before", DescribeGroupsRequest(groups=[group]), 5)
    side.ask("deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    side.ask("deleted again", DeleteGroupsRequest(groups_names=[group]), 2)
    describe(side, "deleted, described", group)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_bad_requests(side: Side) -> None:
    topic = side.new_topic()
    group = side.named("g")
    ready(side, group, topic)
    for label, request in {
        "no group": first("", "m1", topic.name),
        "no member stays": beat(group, "", 1),
        "an epoch that is none": beat(group, "m1", -3),
        "-2 of no static member": beat(group, "m1", -2),
        "an empty instance": first(group, "m1", topic.name, instance_id=""),
        "an empty rack": first(group, "m1", topic.name, rack_id=""),
        "no rebalance timeout": first(group, "m1", topic.name, rebalance_timeout_ms=-1),
        "no subscription": first(group, "m1", subscribed_topic_names=None),
        "partitions not said": first(group, "m1", topic.name, topic_partitions=None),
        "partitions owned": first(group, "m1", topic.name, topic_partitions=owned(topic, 0)),
        "an assignor that is none": first(group, "m1", topic.name, server_assignor="x"),
        "an empty assignor": first(group, "m1", topic.name, server_assignor=""),
    }.items():
        side.ask(label, request)
    if side.version >= 1:
        side.ask("no member joins", first(group, "", topic.name))
        for regex in ("[", "a**", "(?=a)", r"\1", "*", "(", "a{1001}"):
            side.ask(f"a bad expression {regex}", first(group, "m1", subscribed_topic_regex=regex))
    describe(side, "nothing came of it", group)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_hands_over(side: Side) -> None:
    topic = side.new_topic(partitions=4)
    group = side.named("g")
    ready(side, group, topic)
    side.ask("first", first(group, "m1", topic.name))
    time.sleep(INTERVAL_S)
    side.ask("second", first(group, "m2", topic.name))
    describe(side, "m1 has what m2 is to get", group)
    side.ask("has to give up", beat(group, "m1", 2))
    side.ask("has not yet", beat(group, "m1", 2, topic_partitions=owned(topic, 0, 1, 2)))
    side.ask("waits", beat(group, "m2", 3))
    side.ask("gave up", beat(group, "m1", 2, topic_partitions=owned(topic, 0, 1)))
    side.ask("the answer was lost", beat(group, "m1", 2, topic_partitions=owned(topic, 0, 1)))
    side.ask("lost, and it does not say", beat(group, "m1", 2))
    side.ask("lost, and it has too much", beat(group, "m1", 2, topic_partitions=owned(topic, 0, 2)))
    side.ask("gets", beat(group, "m2", 3))
    describe(side, "stable", group)
    side.ask("in use", DeleteGroupsRequest(groups_names=[group]), 2)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def consumer_group_static_members(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group = side.named("g")
    ready(side, group, topic)
    side.ask("joins", first(group, "m1", topic.name, instance_id="i1"))
    side.ask("in use", first(group, "m2", topic.name, instance_id="i1"))
    side.ask("in use by itself", first(group, "m1", topic.name, instance_id="i1"))
    side.ask("of another", beat(group, "m2", 2, instance_id="i1"))
    side.ask("of nobody", beat(group, "m1", 2, instance_id="i2"))
    side.ask("leaves for a while as another", beat(group, "m2", -2, instance_id="i1"))
    side.ask("leaves for a while", beat(group, "m1", -2, instance_id="i1"))
    describe(side, "away", group)
    side.ask("beats nevertheless", beat(group, "m1", 2, instance_id="i1"))
    side.ask("is back", first(group, "m3", topic.name, instance_id="i1"))
    describe(side, "back", group)
    side.ask("the old one", beat(group, "m1", 2, instance_id="i1"))
    side.ask("leaves for good as another", beat(group, "m1", -1, instance_id="i1"))
    side.ask("is removed", LeaveGroupRequest(group_id=group, members=[MemberIdentity(group_instance_id="i1")]), 5)
    describe(side, "empty", group)


@case(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=range(1, 2))
def consumer_group_regular_expressions(side: Side) -> None:
    topic = side.new_topic("topic.a", partitions=2)
    group = side.named("g")
    ready(side, group, topic)
    side.ask(
        "joins", first(group, "m1", subscribed_topic_names=None, subscribed_topic_regex=side.named(r"topic\.[ab]"))
    )
    until_epoch(side, group, "m1", 1, 2)
    describe(side, "resolved", group)


@case(ApiKey.CONSUMER_GROUP_DESCRIBE)
def consumer_group_described(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, classic = side.named("g"), side.named("classic")
    ready(side, group, topic)
    side.set_up(first(group, "m1", topic.name, rack_id="r1", server_assignor="range", instance_id="i1"))
    side.set_up(classic_join(classic, group_instance_id="i1"))
    side.ask("one", ConsumerGroupDescribeRequest(group_ids=[group]))
    side.ask("with what may be done", ConsumerGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=True
    ))  # fmt: skip
    side.ask("a classic one", ConsumerGroupDescribeRequest(group_ids=[classic]))
    side.ask("none", ConsumerGroupDescribeRequest(group_ids=[side.named("none")]))
    side.ask("no name", ConsumerGroupDescribeRequest(group_ids=[""]))
    side.ask("nothing", ConsumerGroupDescribeRequest(group_ids=[]))


@case(ApiKey.OFFSET_COMMIT, versions=range(8, 11))
def consumer_group_offsets(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group = side.named("g")
    ready(side, group, topic)

    def commit(label: str, member: str, epoch: int) -> None:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
        named = {"topic_id": topic.topic_id} if side.version >= 10 else {"name": topic.name}
        side.ask(label, OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=epoch, member_id=member,
            topics=[OffsetCommitRequestTopic(partitions=rows, **named)],
        ))  # fmt: skip

    def fetch(label: str, member: str | None, epoch: int) -> None:
        named = {"topic_id": topic.topic_id} if side.version >= 10 else {"name": topic.name}
        asked = OffsetFetchRequestTopics(partition_indexes=[0, 1], **named)
        part = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=[asked])
        side.ask(label, OffsetFetchRequest(groups=[part]), side.version)

    side.ask("joins", first(group, "m1", topic.name), 1)
    commit("in its epoch", "m1", 2)
    commit("in an earlier one", "m1", 1)
    commit("in a later one", "m1", 3)
    commit("without an epoch", "m1", -1)
    commit("a stranger", "m2", 2)
    commit("nobody", "", -1)
    fetch("by nobody", None, -1)
    if side.version >= 9:
        fetch("in its epoch, fetched", "m1", 2)
        fetch("in an earlier one, fetched", "m1", 1)
        fetch("by a stranger", "m2", 2)
        fetch("by a name that is empty", "", -1)
    side.set_up(beat(group, "m1", -1))
    commit("nobody, when it is empty", "", -1)
    commit("who was a member", "m1", 2)


@case(ApiKey.JOIN_GROUP, versions=range(3, 4))
def classic_member_in_a_consumer_group(side: Side) -> None:
    topic = side.new_topic("t", partitions=2)
    group = side.named("g")
    ready(side, group, topic)
    side.set_up(first(group, "m1", topic.name))
    name = topic.name.encode()
    subscription = b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\0\0\0\0"
    side.ask("of another type", classic_join(group, "", ("range", subscription), protocol_type="connect"))
    time.sleep(INTERVAL_S)
    joined = side.ask("joined", classic_join(group, "c1", ("range", subscription)), CLASSIC_JOIN)
    generation = joined.generation_id
    sync = SyncGroupRequest(
        group_id=group, generation_id=generation, member_id="c1", protocol_type="consumer", protocol_name="range"
    )
    side.ask("asks what it has", sync, 5)
    side.ask("of another generation", HeartbeatRequest(group_id=group, generation_id=9, member_id="c1"), 4)
    side.ask("the new one beats like a classic", HeartbeatRequest(group_id=group, generation_id=2, member_id="m1"), 4)
    side.ask("the classic one leaves", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="c1")]), 5)
    side.ask("again", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id="c1")]), 5)
    side.set_up(beat(group, "m1", -1))
    side.ask("classic in an empty group", JoinGroupRequest(
        group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="other",
        protocols=classic_join(group).protocols,
    ), CLASSIC_JOIN)  # fmt: skip
    describe(side, "classic now", group)
    side.ask("the new protocol in a group of another type", first(group, "m1", topic.name), 1)
