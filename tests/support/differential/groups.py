"""Cases about classic groups and their offsets."""

from __future__ import annotations

import threading
import time
from typing import Any

from appliance.client.connection import Connection
from appliance.wire.api import ApiKey
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.describe_groups import DescribeGroupsRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from appliance.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from appliance.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.differential.sides import CreatedTopic, Side, case
from tests.support.differential.topics import NO_TOPIC

MEMBER_ID_REQUIRED = 79
PATIENCE_S = 20.0
JOIN_VERSION, SYNC_VERSION = 9, 5
SUBSCRIPTION = bytes.fromhex("0001 00000001 0001 74 ffffffff 00000000".replace(" ", ""))
"""A consumer's metadata, version 1: topic "t", no user data, nothing owned."""


def join(group: str, member: str = "", *protocols: tuple[str, bytes], **fields: Any) -> JoinGroupRequest:
    rows = protocols or (("range", SUBSCRIPTION),)
    given = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer", **fields}
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in rows],
        **given,
    )


class Joined:
    """A member of a group of one that is stable."""

    def __init__(self, side: Side, group: str, **fields: Any) -> None:
        self.group = group
        side.find_coordinator(group)
        answer = side.set_up(join(group, **fields), JOIN_VERSION)
        if answer.error_code == MEMBER_ID_REQUIRED:
            answer = side.set_up(join(group, answer.member_id, **fields), JOIN_VERSION)
        assert answer.error_code == 0, (side.name, answer)
        self.member, self.generation = answer.member_id, answer.generation_id
        instance = fields.get("group_instance_id")
        part = SyncGroupRequestAssignment(member_id=self.member, assignment=b"mine")
        synced = side.set_up(
            SyncGroupRequest(
                group_id=group,
                generation_id=self.generation,
                member_id=self.member,
                group_instance_id=instance,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                assignments=[part],
            ),
            SYNC_VERSION,
        )
        assert synced.error_code == 0, (side.name, synced)


def in_background(side: Side, label: str, request: Any, version: int, connection: Connection) -> threading.Thread:
    """Ask something that waits for another request."""
    thread = threading.Thread(target=side.ask, args=(label, request, version), kwargs={"on": connection})
    thread.start()
    return thread


@case(ApiKey.FIND_COORDINATOR)
def find_coordinator(side: Side) -> None:
    side.find_coordinator("first")
    side.find_coordinator("first", 1)
    if side.version < 4:
        side.ask("a group's", FindCoordinatorRequest(key="group"))
        side.ask("an empty group's", FindCoordinatorRequest(key=""))
        if side.version >= 1:
            side.ask("a transaction's", FindCoordinatorRequest(key="id", key_type=1))
            side.ask("an empty transaction's", FindCoordinatorRequest(key="", key_type=1))
            side.ask("a type that is none", FindCoordinatorRequest(key="x", key_type=9))
            side.ask("a negative type", FindCoordinatorRequest(key="x", key_type=-1))
            side.ask(
                "a share group's, of which these versions know nothing", FindCoordinatorRequest(key="x", key_type=2)
            )
        return
    side.ask("of groups", FindCoordinatorRequest(coordinator_keys=["one", "two"]))
    side.ask("of transactions", FindCoordinatorRequest(coordinator_keys=["one", ""], key_type=1))
    side.ask("of nobody", FindCoordinatorRequest(coordinator_keys=[]))
    side.ask("a type that is none", FindCoordinatorRequest(coordinator_keys=["x"], key_type=9))
    side.ask("a negative type", FindCoordinatorRequest(coordinator_keys=["x"], key_type=-1))
    side.ask("a share group's, wrongly written", FindCoordinatorRequest(coordinator_keys=["x"], key_type=2))


@case(ApiKey.JOIN_GROUP)
def join_group(side: Side) -> None:
    group = side.named("g")
    side.find_coordinator(group)
    first = side.ask("first", join(group))
    member = first.member_id
    if first.error_code:
        side.ask("with its id", join(group, member, reason="as told"))
    side.ask("of another protocol type", join(group, "", protocol_type="connect"))
    side.ask("without a common protocol", join(group, "", ("other", b"")))
    side.ask("with an unknown id", join(group, "nobody"))
    side.ask("no group", join(""))
    other = side.named("other")
    side.ask("no protocols", JoinGroupRequest(
        group_id=other, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer"
    ))  # fmt: skip
    side.ask("no protocol type", join(other, protocol_type=""))
    side.ask("too short a session", join(other, session_timeout_ms=10))
    side.ask("too long a session", join(other, session_timeout_ms=10_000_000))
    side.ask("an unknown id in an empty group", join(other, "nobody"))
    opaque = side.named("opaque")
    again = side.ask("opaque", join(opaque, "", ("sessioned", b"\x00not a subscription\xff"), protocol_type="connect"))
    if again.error_code:
        side.ask("opaque with its id", join(opaque, again.member_id, ("sessioned", b"\xff"), protocol_type="connect"))
    if side.version >= 5:
        static = side.named("static")
        made = side.ask("static", join(static, group_instance_id="i1"))
        side.ask("static again", join(static, group_instance_id="i1"))
        side.ask("static with the old id", join(static, made.member_id, group_instance_id="i1"))
        side.ask("static with an unknown id", join(static, "nobody", group_instance_id="i1"))
        side.ask("an unknown instance with an id", join(static, made.member_id, group_instance_id="i9"))
        side.ask("an empty instance", join(side.named("no-instance"), group_instance_id=""))


@case(ApiKey.JOIN_GROUP, versions=range(5, 10))
def static_members(side: Side) -> None:
    group = side.named("g")
    first = Joined(side, group, group_instance_id="i1")

    def describe(label: str) -> None:
        side.ask(label, DescribeGroupsRequest(groups=[group]), 6)

    def beat(label: str, member: str, generation: int, instance: str | None = "i1") -> None:
        side.ask(label, HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
        ), 4)  # fmt: skip

    describe("stable")
    again = side.ask("rejoins without rebalance", join(group, group_instance_id="i1"))
    beat("the new id beats", again.member_id, again.generation_id)
    beat("the old id is fenced", first.member, first.generation)
    beat("an unknown instance", again.member_id, again.generation_id, "i2")
    side.ask("syncs without rebalance", SyncGroupRequest(
        group_id=group, generation_id=again.generation_id, member_id=again.member_id, group_instance_id="i1"
    ), 5)  # fmt: skip
    side.ask("the old id syncs", SyncGroupRequest(
        group_id=group, generation_id=again.generation_id, member_id=first.member, group_instance_id="i1"
    ), 5)  # fmt: skip
    describe("after the rejoin")
    changed = side.ask("rejoins with another subscription", join(
        group, "", ("range", SUBSCRIPTION.replace(b"t", b"u")), group_instance_id="i1"
    ))  # fmt: skip
    describe("after another subscription")
    for label, identity in {
        "an unknown instance leaves": MemberIdentity(group_instance_id="i9"),
        "the old id leaves": MemberIdentity(member_id=first.member, group_instance_id="i1"),
        "it leaves by its instance": MemberIdentity(group_instance_id="i1"),
        "it leaves again": MemberIdentity(group_instance_id="i1"),
    }.items():
        side.ask(label, LeaveGroupRequest(group_id=group, members=[identity]), 5)
    describe("empty")
    beat("after it left", changed.member_id, changed.generation_id)


@case(ApiKey.JOIN_GROUP, versions=range(2, 10))
def two_members(side: Side) -> None:
    """A second member joins: the first hears of it, both get their part, one leaves."""
    group = side.named("g")
    first = Joined(side, group)
    answer = side.set_up(join(group), JOIN_VERSION)
    second_id, other = answer.member_id, side.another()
    waiting = in_background(side, "second joins", join(group, second_id), side.version, other)
    told, deadline = 0, time.monotonic() + PATIENCE_S
    while told != 27:
        assert time.monotonic() < deadline, f"{side.name}: the first member does not hear of the second"
        beat = HeartbeatRequest(group_id=group, generation_id=first.generation, member_id=first.member)
        told = side.set_up(beat, 4).error_code
    side.ask("while they gather", DescribeGroupsRequest(groups=[group]), 6)
    rejoined = side.set_up(join(group, first.member), JOIN_VERSION)
    waiting.join()
    generation = rejoined.generation_id
    side.seen.append(("the leader stays, both are members", 11, {
        "leader": rejoined.leader == first.member, "members": len(rejoined.members), "generation": generation,
    }))  # fmt: skip
    kind = {"protocol_type": "consumer", "protocol_name": "range"}
    sync = SyncGroupRequest(group_id=group, generation_id=generation, member_id=second_id, **kind)
    waiting = in_background(side, "second syncs", sync, SYNC_VERSION, other)
    parts = [SyncGroupRequestAssignment(member_id=first.member, assignment=b"1")]
    parts += [SyncGroupRequestAssignment(member_id=second_id, assignment=b"2")]
    side.set_up(
        SyncGroupRequest(group_id=group, generation_id=generation, member_id=first.member, assignments=parts, **kind),
        SYNC_VERSION,
    )
    waiting.join()
    side.ask("an old generation beats", HeartbeatRequest(
        group_id=group, generation_id=generation - 1, member_id=first.member
    ), 4)  # fmt: skip
    side.ask("a second one leaves", LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=second_id), MemberIdentity(member_id="nobody")]
    ), 5)  # fmt: skip
    side.ask("the first hears", HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=first.member
    ), 4)  # fmt: skip


@case(ApiKey.SYNC_GROUP)
def sync_group(side: Side) -> None:
    group = side.named("g")
    member = Joined(side, group)

    def ask(label: str, **fields: Any) -> None:
        given = {"group_id": group, "generation_id": member.generation, "member_id": member.member, **fields}
        side.ask(label, SyncGroupRequest(**given))

    ask("again")
    ask("an old generation", generation_id=member.generation - 1)
    ask("an unknown member", member_id="nobody")
    ask("no member", member_id="")
    ask("an unknown group", group_id=side.named("none"))
    ask("no group", group_id="")
    if side.version >= 3:
        ask("an unknown instance", group_instance_id="i")
    if side.version >= 5:
        ask("with its protocol", protocol_type="consumer", protocol_name="range")
        ask("another type", protocol_type="connect", protocol_name="range")
        ask("another name", protocol_type="consumer", protocol_name="other")


@case(ApiKey.HEARTBEAT)
def heartbeat(side: Side) -> None:
    group = side.named("g")
    member = Joined(side, group)

    def ask(label: str, **fields: Any) -> None:
        given = {"group_id": group, "generation_id": member.generation, "member_id": member.member, **fields}
        side.ask(label, HeartbeatRequest(**given))

    ask("alive")
    ask("an old generation", generation_id=member.generation - 1)
    ask("a generation to come", generation_id=member.generation + 1)
    ask("an unknown member", member_id="nobody")
    ask("an unknown group", group_id=side.named("none"))
    ask("no group", group_id="")
    if side.version >= 3:
        ask("an unknown instance", group_instance_id="i")


@case(ApiKey.LEAVE_GROUP)
def leave_group(side: Side) -> None:
    group = side.named("g")
    member = Joined(side, group)
    side.find_coordinator(side.named("none"))
    if side.version < 3:
        side.ask("an unknown member", LeaveGroupRequest(group_id=group, member_id="nobody"))
        side.ask("an unknown group", LeaveGroupRequest(group_id=side.named("none"), member_id="nobody"))
        side.ask("no group", LeaveGroupRequest(group_id="", member_id="nobody"))
        side.ask("leaves", LeaveGroupRequest(group_id=group, member_id=member.member))
        side.ask("leaves again", LeaveGroupRequest(group_id=group, member_id=member.member))
        return

    def ask(label: str, *members: tuple[str, str | None], group_id: str = group) -> None:
        rows = [MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members]
        side.ask(label, LeaveGroupRequest(group_id=group_id, members=rows))

    alone = Joined(side, side.named("alone"))
    ask("leaves alone", (alone.member, None), group_id=alone.group)
    ask("nobody")
    ask("an unknown member", ("nobody", None))
    ask("an unknown instance", ("", "i"))
    ask("a member with a foreign instance", (member.member, "i"))
    ask("an unknown group", ("nobody", None), group_id=side.named("none"))
    ask("no group", ("nobody", None), group_id="")
    ask("one known, one not", (member.member, None), ("nobody", None))
    ask("leaves again", (member.member, None))


@case(ApiKey.DESCRIBE_GROUPS)
def describe_groups(side: Side) -> None:
    stable = Joined(side, side.named("stable"))
    static = Joined(side, side.named("static"), group_instance_id="i1")
    connect = Joined(side, side.named("connect"), protocol_type="connect")
    empty = side.named("empty")
    topic = side.new_topic("t")
    commit(side, empty, topic)
    groups = [stable.group, static.group, connect.group, empty]
    for group in groups:
        side.ask(f"group {group.rpartition('-')[2]}", DescribeGroupsRequest(groups=[group]))
    side.ask("missing", DescribeGroupsRequest(groups=[side.named("missing")]))
    side.ask("no name", DescribeGroupsRequest(groups=[""]))
    side.ask("none", DescribeGroupsRequest())
    side.ask("twice", DescribeGroupsRequest(groups=[stable.group, stable.group]))
    if side.version >= 3:
        side.ask("operations", DescribeGroupsRequest(groups=[stable.group], include_authorized_operations=True))
        missing = DescribeGroupsRequest(groups=[side.named("missing")], include_authorized_operations=True)
        side.ask("operations on a missing one", missing)


def commit(side: Side, group: str, topic: CreatedTopic, offset: int = 5, metadata: str | None = "m") -> Any:
    side.find_coordinator(group)
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=metadata)
    answer = side.set_up(
        OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[row])],
        )
    )
    assert answer.topics[0].partitions[0].error_code == 0, (side.name, answer)
    return answer


@case(ApiKey.LIST_GROUPS)
def list_groups(side: Side) -> None:
    for kind in ("consumer", "connect"):
        Joined(side, side.named(kind), protocol_type=kind)
    commit(side, side.named("empty"), side.new_topic("t"))

    def ask(label: str, **fields: Any) -> None:
        answer = side.set_up(ListGroupsRequest(**fields), side.version)
        answer.groups = [group for group in answer.groups if group.group_id.startswith(side.prefix + "-")]
        side.remember(label, answer, side.version)

    ask("all")
    if side.version >= 4:
        for state in ("Stable", "Empty", "empty", "Dead", "PreparingRebalance", "Nonsense", ""):
            ask(f"state {state}", states_filter=[state])
        ask("two states", states_filter=["Stable", "Empty"])
    if side.version >= 5:
        for kind in ("classic", "Classic", "consumer", "share", "streams", "nonsense"):
            ask(f"type {kind}", types_filter=[kind])
        ask("state and type", states_filter=["Empty"], types_filter=["classic"])


@case(ApiKey.DELETE_GROUPS)
def delete_groups(side: Side) -> None:
    stable, topic = Joined(side, side.named("stable")), side.new_topic("t")
    commit(side, side.named("empty"), topic)
    side.find_coordinator(side.named("missing"))

    def ask(label: str, *groups: str) -> None:
        side.ask(label, DeleteGroupsRequest(groups_names=list(groups)))

    ask("with members", stable.group)
    ask("missing", side.named("missing"))
    ask("no name", "")
    ask("none")
    ask("empty", side.named("empty"))
    ask("empty again", side.named("empty"))
    ask("many", stable.group, side.named("missing"))
    ask("twice", stable.group, stable.group)


@case(ApiKey.OFFSET_COMMIT)
def offset_commit(side: Side) -> None:
    topic = side.new_topic("t", partitions=2)
    missing = CreatedTopic(side.named("missing"), NO_TOPIC)
    group = side.named("simple")
    side.find_coordinator(group)

    def ask(label: str, *rows: tuple[CreatedTopic, int, int, str | None], **fields: Any) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=one.name,
                topic_id=one.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
            for one, partition, offset, metadata in rows
        ]
        side.ask(label, OffsetCommitRequest(**{"group_id": group, "topics": topics, **fields}))

    ask("simple", (topic, 0, 5, "some text"))
    ask("null metadata", (topic, 0, 6, None))
    ask("long metadata", (topic, 0, 7, "x" * 4096))
    ask("too long metadata", (topic, 0, 7, "x" * 4097))
    ask("a negative offset", (topic, 1, -5, ""))
    ask("a partition that is missing", (topic, 9, 5, ""))
    ask("a topic that is missing", (missing, 0, 5, ""))
    ask("good and bad", (topic, 0, 8, ""), (missing, 0, 5, ""))
    ask("nothing")
    ask("no group", (topic, 0, 5, ""), group_id="")
    ask("a generation of a simple group", (topic, 0, 5, ""), generation_id_or_member_epoch=3, member_id="m")
    ask("a member of a group that is missing", (topic, 0, 5, ""), group_id=side.named("none"), member_id="m",
        generation_id_or_member_epoch=1)  # fmt: skip
    ask("a member without generation", (topic, 0, 5, ""), member_id="m")
    member = Joined(side, side.named("joined"))
    ids = {"group_id": member.group, "member_id": member.member, "generation_id_or_member_epoch": member.generation}
    ask("a member", (topic, 0, 5, ""), **ids)
    ask("an old generation", (topic, 0, 5, ""), **{**ids, "generation_id_or_member_epoch": member.generation - 1})
    ask("an unknown member", (topic, 0, 5, ""), **{**ids, "member_id": "nobody"})
    ask("from outside", (topic, 0, 5, ""), group_id=member.group)
    if side.version >= 7:
        ask("an unknown instance", (topic, 0, 5, ""), group_instance_id="i", **ids)
    if side.version <= 4:
        ask("with a retention of its own", (topic, 0, 5, ""), retention_time_ms=60_000)


@case(ApiKey.OFFSET_FETCH)
def offset_fetch(side: Side) -> None:
    topic = side.new_topic("t", partitions=2)
    group, missing = side.named("g"), CreatedTopic(side.named("missing"), NO_TOPIC)
    commit(side, group, topic, 7, "text")
    side.find_coordinator(side.named("none"))

    def ask(label: str, group_id: str, *rows: tuple[CreatedTopic, int], everything: bool = False) -> None:
        fields: dict[str, Any] = {}
        if side.version >= 8:
            topics = [
                OffsetFetchRequestTopics(name=one.name, topic_id=one.topic_id, partition_indexes=[partition])
                for one, partition in rows
            ]
            wanted = OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else topics)
            fields["groups"] = [wanted]
        else:
            named = [OffsetFetchRequestTopic(name=one.name, partition_indexes=[partition]) for one, partition in rows]
            fields |= {"group_id": group_id, "topics": None if everything else named}
        side.ask(label, OffsetFetchRequest(**fields))

    ask("committed", group, (topic, 0))
    ask("not committed", group, (topic, 1))
    ask("a partition that is missing", group, (topic, 9))
    ask("a topic that is missing", group, (missing, 0))
    ask("good and bad", group, (topic, 0), (missing, 0))
    ask("none", group)
    ask("a group that is missing", side.named("none"), (topic, 0))
    ask("no group", "", (topic, 0))
    if side.version >= 2:
        ask("all", group, everything=True)
        ask("all of a group that is missing", side.named("none"), everything=True)
    if side.version >= 7:
        stable = OffsetFetchRequest(require_stable=True)
        if side.version >= 8:
            rows = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0, 1])]
            stable.groups = [OffsetFetchRequestGroup(group_id=group, topics=rows)]
        else:
            stable.group_id = group
            stable.topics = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])]
        side.ask("stable", stable)
    if side.version >= 8:
        rows = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup(group_id=one, topics=rows) for one in (group, side.named("none"))]
        side.ask("two groups", OffsetFetchRequest(groups=groups))
    if side.version >= 9:
        rows = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0])]
        row = OffsetFetchRequestGroup(group_id=group, topics=rows, member_id="m", member_epoch=1)
        side.ask("as a member of another kind of group", OffsetFetchRequest(groups=[row]))


@case(ApiKey.OFFSET_DELETE)
def offset_delete(side: Side) -> None:
    topic = side.new_topic("t", partitions=2)
    group = side.named("g")
    commit(side, group, topic)
    side.find_coordinator(side.named("none"))

    def ask(label: str, group_id: str, name: str, *partitions: int) -> None:
        rows = [OffsetDeleteRequestPartition(partition_index=number) for number in partitions]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=rows)]
        side.ask(label, OffsetDeleteRequest(group_id=group_id, topics=topics))

    ask("a partition that is missing", group, topic.name, 9)
    ask("a topic that is missing", group, side.named("missing"), 0)
    ask("not committed", group, topic.name, 1)
    ask("both", group, topic.name, 0, 1)
    ask("again", group, topic.name, 0)
    ask("a group that is missing", side.named("none"), topic.name, 0)
    ask("no group", "", topic.name, 0)
    side.ask("nothing", OffsetDeleteRequest(group_id=group))
    subscription = bytes.fromhex("000100000001") + len(topic.name).to_bytes(2, "big") + topic.name.encode()
    subscription += bytes.fromhex("ffffffff00000000")
    side.find_coordinator(side.named("live"))
    live = side.set_up(join(side.named("live"), "", ("range", subscription)), 3)
    part = SyncGroupRequestAssignment(member_id=live.member_id, assignment=b"")
    side.set_up(SyncGroupRequest(
        group_id=side.named("live"), generation_id=live.generation_id, member_id=live.member_id, assignments=[part]
    ))  # fmt: skip
    ask("of a subscribed topic", side.named("live"), topic.name, 0)
    other = side.new_topic("other")
    ask("of another topic", side.named("live"), other.name, 0)
    connect = Joined(side, side.named("connect"), protocol_type="connect")
    ask("of a group of another kind", connect.group, topic.name, 0)
