"""Cases about share groups (KIP-932): members, offsets, and records that are handed out and acknowledged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from appliance.wire.api import ApiKey
from appliance.wire.messages import share_acknowledge as saying
from appliance.wire.messages import share_fetch as fetching
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.describe_groups import DescribeGroupsRequest
from appliance.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.share_group_describe import ShareGroupDescribeRequest
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.differential.configs import GROUP, SET, incremental
from tests.support.differential.groups import Joined
from tests.support.differential.groups import join as classic_join
from tests.support.differential.records import batch, produced
from tests.support.differential.sides import CreatedTopic, Side, case
from tests.support.differential.topics import NO_TOPIC

PATIENCE_S = 30.0
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
SHORT_MS, LONG_MS = 0, 5_000


def beat(group: str, member: str, epoch: int, **said: Any) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **said)


def first(group: str, member: str, *topics: str, **said: Any) -> ShareGroupHeartbeatRequest:
    return beat(group, member, 0, **{"subscribed_topic_names": list(topics), **said})


def ready(side: Side, group: str, *topics: CreatedTopic, **configs: str) -> str:
    """A member of a share group that reads from the beginning, and has all partitions of the topics."""
    side.find_coordinator(group)
    entries = {"share.auto.offset.reset": "earliest"} | {k.replace("_", "."): v for k, v in configs.items()}
    side.set_up(incremental(GROUP, group, *((name, SET, value) for name, value in entries.items())))
    member = "m" + "0" * 21
    request = first(group, member, *(topic.name for topic in topics))
    deadline = time.monotonic() + PATIENCE_S
    has: set[uuid.UUID] = set()
    while has < {topic.topic_id for topic in topics}:
        answer = side.set_up(request)
        assert not answer.error_code and time.monotonic() < deadline, (side.name, answer)
        if answer.assignment is not None:
            has = {row.topic_id for row in answer.assignment.topic_partitions}
        request = beat(group, member, answer.member_epoch)
        time.sleep(0.05)
    return member


def at_epoch(side: Side, group: str, member: str, topic: CreatedTopic, wanted: int) -> None:
    """Let a member have this epoch, by as many other subscriptions as that takes."""
    (described,) = side.set_up(ShareGroupDescribeRequest(group_ids=[group])).groups
    answer = described.members[0]
    assert described.group_epoch < wanted, (side.name, described)
    for left in reversed(range(wanted - described.group_epoch)):
        names = [topic.name, side.named(f"missing-{wanted}-{left}")]
        answer = side.set_up(beat(group, member, answer.member_epoch, subscribed_topic_names=names))
    deadline = time.monotonic() + PATIENCE_S
    while answer.member_epoch != wanted:
        assert not answer.error_code and time.monotonic() < deadline, (side.name, answer)
        time.sleep(0.05)
        answer = side.set_up(beat(group, member, answer.member_epoch))


def describe(side: Side, label: str, *groups: str, **fields: Any) -> None:
    side.ask(label, ShareGroupDescribeRequest(group_ids=list(groups), **fields), 1)


# Members


@case(ApiKey.SHARE_GROUP_HEARTBEAT)
def share_group_comes_and_goes(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group = side.named("g")
    member = ready(side, group, topic)
    epoch = 6
    at_epoch(side, group, member, topic, epoch - 1)
    at_epoch(side, group, member, topic, epoch)
    side.ask("joins again", first(group, member, topic.name))
    side.ask("stays", beat(group, member, epoch))
    side.ask("says a rack", beat(group, member, epoch, rack_id="r"))
    side.ask("its last epoch", beat(group, member, epoch - 1))
    side.ask("behind", beat(group, member, epoch - 2))
    side.ask("far ahead", beat(group, member, epoch + 9))
    side.ask("a stranger", beat(group, "m2", epoch))
    side.ask("a stranger leaves", beat(group, "m2", -1))
    side.ask("an unknown group", beat(side.named("none"), "m1", 1))
    side.ask("an unknown group is left", beat(side.named("none"), "m1", -1))
    side.ask("an epoch that is none", beat(group, member, -2))
    side.ask("no group", first("", member, topic.name))
    side.ask("no member", first(group, "", topic.name))
    side.ask("no subscription", first(group, "m3", subscribed_topic_names=None))
    side.ask("an empty subscription", first(group, "m3", subscribed_topic_names=[]))
    side.ask("an empty rack", first(group, "m3", topic.name, rack_id=""))
    side.ask("too long a member", first(group, "m" * 37, topic.name))
    side.ask("in use", DeleteGroupsRequest(groups_names=[group]), 2)
    side.ask("leaves", beat(group, member, -1))
    side.ask("leaves again", beat(group, member, -1))
    describe(side, "empty", group)
    side.ask("deleted", DeleteGroupsRequest(groups_names=[group]), 2)
    describe(side, "gone", group)


@case(ApiKey.SHARE_GROUP_DESCRIBE, is_for_compat=True)
def share_group_described(side: Side) -> None:
    topic = side.new_topic(partitions=2)
    group, classic = side.named("g"), side.named("classic")
    at_epoch(side, group, ready(side, group, topic), topic, 5)
    Joined(side, classic)
    describe(side, "one", group)
    describe(side, "with what may be done", group, include_authorized_operations=True)
    describe(side, "a classic one", classic)
    describe(side, "missing", side.named("missing"))
    describe(side, "no name", "")
    describe(side, "none")
    describe(side, "many", group, classic, side.named("missing"))
    side.ask("as a classic group", DescribeGroupsRequest(groups=[group]), 6)
    side.ask("as a consumer group", ConsumerGroupDescribeRequest(group_ids=[group]), 1)


@case(ApiKey.SHARE_GROUP_HEARTBEAT, is_for_compat=True)
def share_group_and_other_kinds(side: Side) -> None:
    topic = side.new_topic()
    group, classic = side.named("g"), side.named("classic")
    ready(side, group, topic)
    Joined(side, classic)
    side.ask("in a classic group", first(classic, "m1", topic.name))
    side.ask("a classic member", classic_join(group), 9)


# Offsets


def _offsets(group: str, topics: dict[str, list[int]] | None) -> DescribeShareGroupOffsetsRequest:
    rows = None
    if topics is not None:
        rows = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    return DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=rows)])


@case(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, is_for_compat=True)
def describe_share_group_offsets(side: Side) -> None:
    topic, unread = side.new_topic(partitions=2, retention_ms="-1"), side.new_topic("unread")
    side.set_up(produced(topic, 0, batch(b"one", b"two", b"three")), 9)
    group, classic = side.named("g"), side.named("classic")
    member = ready(side, group, topic)
    taken = fetched(side, group, member, topic, 0)
    assert taken == 3, (side.name, taken)
    side.ask("handed out", _offsets(group, {topic.name: [0]}))
    side.set_up(share_say(group, member, 1, (topic.topic_id, 0, {(0, 0): [ACCEPT], (2, 2): [REJECT]})))
    Joined(side, classic)
    side.ask("some", _offsets(group, {topic.name: [0, 1]}))
    side.ask("all", _offsets(group, None))
    side.ask("a topic that is not read", _offsets(group, {unread.name: [0]}))
    side.ask("a topic that is missing", _offsets(group, {side.named("missing"): [0]}))
    side.ask("good and bad", _offsets(group, {topic.name: [0], side.named("missing"): [0]}))
    side.ask("a partition twice", _offsets(group, {topic.name: [1, 1]}))
    side.ask("no topics", _offsets(group, {}))
    side.ask("a group that is missing", _offsets(side.named("none"), {topic.name: [0]}))
    side.ask("all of a group that is missing", _offsets(side.named("none"), None))
    side.ask("a classic group", _offsets(classic, {topic.name: [0]}))
    side.ask("no group", _offsets("", {topic.name: [0]}))
    side.ask("nothing", DescribeShareGroupOffsetsRequest())


@case(ApiKey.ALTER_SHARE_GROUP_OFFSETS, is_for_compat=True)
def alter_share_group_offsets(side: Side) -> None:
    topic, unread = side.new_topic(partitions=2, retention_ms="-1"), side.new_topic("unread")
    side.set_up(produced(topic, 0, batch(b"one", b"two", b"three")), 9)
    group, classic = side.named("g"), side.named("classic")
    member = ready(side, group, topic)
    Joined(side, classic)

    def ask(label: str, name: str, *offsets: tuple[int, int], group_id: str = group) -> None:
        rows = [AlterShareGroupOffsetsRequestPartition(partition_index=at, start_offset=to) for at, to in offsets]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=rows)]
        side.ask(label, AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))

    ask("with members", topic.name, (0, 2))
    side.set_up(beat(group, member, -1))
    ask("set", topic.name, (0, 2), (1, 0))
    side.ask("after it was set", _offsets(group, {topic.name: [0, 1]}), 1)
    ask("of a topic that was not read", unread.name, (0, 5))
    side.ask("after that", _offsets(group, None), 1)
    ask("a partition that is missing", topic.name, (7, 0))
    ask("a topic that is missing", side.named("missing"), (0, 0))
    ask("good and bad", topic.name, (0, 1), (9, 1))
    ask("a negative offset", topic.name, (1, -5))
    ask("a group that is missing", topic.name, (0, 1), group_id=side.named("none"))
    ask("a classic group", topic.name, (0, 1), group_id=classic)
    ask("no group", topic.name, (0, 1), group_id="")
    ask("a partition twice", topic.name, (1, 0), (1, 0))
    ask("no partitions", topic.name)
    side.ask("nothing", AlterShareGroupOffsetsRequest(group_id=group))


@case(ApiKey.DELETE_SHARE_GROUP_OFFSETS, is_for_compat=True)
def delete_share_group_offsets(side: Side) -> None:
    topic, other, unread = side.new_topic(), side.new_topic("other"), side.new_topic("unread")
    group, classic = side.named("g"), side.named("classic")
    member = ready(side, group, topic, other)
    Joined(side, classic)

    def ask(label: str, *names: str, group_id: str = group) -> None:
        rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
        side.ask(label, DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows))

    ask("with members", topic.name)
    side.set_up(beat(group, member, -1))
    ask("deleted", topic.name)
    ask("deleted again", topic.name)
    side.ask("what is left", _offsets(group, None), 1)
    ask("a topic that was not read", unread.name)
    ask("a topic that is missing", side.named("missing"))
    ask("good and bad", other.name, side.named("missing"))
    ask("a group that is missing", topic.name, group_id=side.named("none"))
    ask("a classic group", topic.name, group_id=classic)
    ask("no group", topic.name, group_id="")
    ask("nothing")


# Records

Said = dict[tuple[int, int], list[int]]
"""Types by the first and last offset."""
Place = tuple[uuid.UUID, int, Said]


def said_of(places: Sequence[Place], topic: type[Any], partition: type[Any], batch: type[Any]) -> list[Any]:
    """A topic for each place, in the types of one of the two requests that say something."""
    return [
        topic(
            topic_id=topic_id,
            partitions=[
                partition(
                    partition_index=index,
                    acknowledgement_batches=[
                        batch(first_offset=low, last_offset=high, acknowledge_types=types)
                        for (low, high), types in said.items()
                    ],
                )
            ],
        )
        for topic_id, index, said in places
    ]


def share_fetch(
    group: str | None, member: str | None, epoch: int, *places: Place, **fields: Any
) -> fetching.ShareFetchRequest:
    given = {"max_wait_ms": SHORT_MS, "min_bytes": 0, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
    return fetching.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=said_of(places, fetching.FetchTopic, fetching.FetchPartition, fetching.AcknowledgementBatch),
        **{**given, **fields},
    )


def share_say(
    group: str | None, member: str | None, epoch: int, *places: Place, **fields: Any
) -> saying.ShareAcknowledgeRequest:
    return saying.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=said_of(places, saying.AcknowledgeTopic, saying.AcknowledgePartition, saying.AcknowledgementBatch),
        **fields,
    )


def fetched(side: Side, group: str, member: str, topic: CreatedTopic, epoch: int, **fields: Any) -> int:
    """How many records a member takes, with a wait until there are some."""
    request = share_fetch(group, member, epoch, (topic.topic_id, 0, {}), max_wait_ms=LONG_MS, min_bytes=1, **fields)
    answer = side.set_up(request)
    assert not answer.error_code, (side.name, answer)
    rows = [row for one in answer.responses for part in one.partitions for row in part.acquired_records]
    return sum(row.last_offset - row.first_offset + 1 for row in rows)


def ask_fetch(side: Side, label: str, request: fetching.ShareFetchRequest) -> None:
    """Without rows that say nothing: whether an empty partition has one hangs on when it was looked at last."""
    answer = side.answer_to(request)
    spoken_of = {
        (topic.topic_id, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }
    for topic in answer.responses:
        topic.partitions = [
            row
            for row in topic.partitions
            if row.error_code or row.acquired_records or (topic.topic_id, row.partition_index) in spoken_of
        ]
        for row in topic.partitions:
            row.acquired_records = _joined(row.acquired_records)
    answer.responses = [topic for topic in answer.responses if topic.partitions]
    side.remember(label, answer, side.version)


def _joined(rows: list[fetching.AcquiredRecords]) -> list[fetching.AcquiredRecords]:
    """Neighbours with the same count as one: how they are cut is of no meaning."""
    joined: list[fetching.AcquiredRecords] = []
    for row in rows:
        last = joined[-1] if joined else None
        if last and (last.last_offset + 1, last.delivery_count) == (row.first_offset, row.delivery_count):
            last.last_offset = row.last_offset
        else:
            joined.append(row)
    return joined


def filled(side: Side, batches: int = 4, **configs: str) -> tuple[CreatedTopic, str, str]:
    """A topic with batches of two records, a group that reads it, and its member."""
    topic = side.new_topic(partitions=2, retention_ms="-1")
    for number in range(batches):
        side.set_up(produced(topic, 0, batch(b"one%d" % number, b"two%d" % number)), 9)
    group = side.named("g")
    return topic, group, ready(side, group, topic, **configs)


@case(ApiKey.SHARE_FETCH)
def share_fetch_hands_out(side: Side) -> None:
    topic, group, member = filled(side)
    waits = {"max_wait_ms": LONG_MS, "min_bytes": 1}

    def ask(label: str, epoch: int, *places: Place, **fields: Any) -> None:
        ask_fetch(side, label, share_fetch(group, member, epoch, *places, **fields))

    there, empty = (topic.topic_id, 0, {}), (topic.topic_id, 1, {})
    ask("a session begins", 0, there, max_records=2, batch_size=2, **waits)
    ask("accepts, and gets more", 1, (topic.topic_id, 0, {(0, 1): [ACCEPT]}), max_records=2, batch_size=2, **waits)
    ask("releases one, rejects one", 2, (topic.topic_id, 0, {(2, 3): [RELEASE, REJECT]}), max_bytes=0)
    ask("gets again what it released, and more", 3, max_records=10, **waits)
    ask("nothing is left", 4)
    ask("an empty partition", 5, empty)
    ask("accepts what it has not", 6, (topic.topic_id, 0, {(0, 1): [ACCEPT]}))
    ask("accepts what is not there", 7, (topic.topic_id, 0, {(50, 60): [ACCEPT]}))
    ask("a type that is none", 8, (topic.topic_id, 0, {(4, 5): [9]}))
    ask("types that do not fit", 9, (topic.topic_id, 0, {(4, 5): [ACCEPT] * 5}))
    ask("the last before the first", 10, (topic.topic_id, 0, {(5, 4): [ACCEPT]}))
    ask("forgets a partition", 11, forgotten_topics_data=[
        fetching.ForgottenTopic(topic_id=topic.topic_id, partitions=[1])
    ])  # fmt: skip
    ask("a partition that is missing", 12, (topic.topic_id, 7, {}))
    ask("a topic that is missing", 13, (NO_TOPIC, 0, {}))
    ask("of a topic that is missing", 14, (NO_TOPIC, 0, {(0, 1): [ACCEPT]}))
    ask("an epoch that is wrong", 99, there)
    ask("ends, and accepts", -1, (topic.topic_id, 0, {(4, 5): [ACCEPT]}))
    ask("the session is over", 15, there)


@case(ApiKey.SHARE_FETCH, is_for_compat=True)
def share_fetch_wrong_requests(side: Side) -> None:
    topic, group, member = filled(side, 1)
    there = (topic.topic_id, 0, {})

    def ask(label: str, group_id: str | None, member_id: str | None, epoch: int, *places: Any, **fields: Any) -> None:
        ask_fetch(side, label, share_fetch(group_id, member_id, epoch, *places, **fields))

    ask("no group", "", member, 0, there)
    ask("a group that is null", None, member, 0, there)
    ask("no member", group, "", 0, there)
    ask("a member that is null", group, None, 0, there)
    ask("too long a member", group, "m" * 40, 0, there)
    ask("an epoch that is none", group, member, -2, there)
    ask("no such session", group, member, 3, there)
    ask("ends what has not begun", group, member, -1, there)
    ask("says something at first", group, member, 0, (topic.topic_id, 0, {(0, 1): [ACCEPT]}))
    if side.version >= 2:
        ask("a mode that is none", group, member, 0, there, share_acquire_mode=7)
        ask("renews and fetches", group, member, 0, there, is_renew_ack=True)


@case(ApiKey.SHARE_FETCH, versions=range(2, 3), is_for_compat=True)
def share_fetch_of_the_second_version(side: Side) -> None:
    topic, group, member = filled(side)
    there = (topic.topic_id, 0, {})
    waits = {"max_wait_ms": LONG_MS, "min_bytes": 1}
    none = {"max_bytes": 0, "max_records": 0, "batch_size": 0, "is_renew_ack": True}

    def ask(label: str, epoch: int, *places: Place, **fields: Any) -> None:
        ask_fetch(side, label, share_fetch(group, member, epoch, *places, **fields))

    ask("exactly three", 0, there, share_acquire_mode=1, max_records=3, **waits)
    ask("and two more", 1, share_acquire_mode=1, max_records=2, **waits)
    ask("renews some", 2, (topic.topic_id, 0, {(0, 2): [RENEW]}), **none)
    ask("renews and accepts", 3, (topic.topic_id, 0, {(0, 2): [RENEW, ACCEPT, RENEW]}), **none)
    ask("renews what it has not", 4, (topic.topic_id, 0, {(6, 7): [RENEW]}), **none)
    ask("renews without saying so", 5, (topic.topic_id, 0, {(2, 2): [RENEW]}))


@case(ApiKey.SHARE_ACKNOWLEDGE, is_for_compat=True)
def share_acknowledge(side: Side) -> None:
    topic, group, member = filled(side)
    assert fetched(side, group, member, topic, 0) == 8

    def ask(label: str, epoch: int, *places: Place, **fields: Any) -> None:
        given = {"group_id": group, "member_id": member, **fields}
        side.ask(label, share_say(given.pop("group_id"), given.pop("member_id"), epoch, *places, **given))

    def said(offsets: tuple[int, int], *types: int, partition: int = 0) -> tuple[uuid.UUID, int, Said]:
        return (topic.topic_id, partition, {offsets: list(types)})

    ask("accepted", 1, said((0, 1), ACCEPT))
    ask("accepted again", 2, said((0, 1), ACCEPT))
    ask("one released, one rejected", 3, said((2, 3), RELEASE, REJECT))
    ask("a gap", 4, said((4, 4), 0))
    ask("a type that is none", 5, said((5, 5), 9))
    ask("types that do not fit", 6, said((5, 6), ACCEPT, ACCEPT, ACCEPT))
    ask("the last before the first", 7, said((6, 5), ACCEPT))
    ask("two that overlap", 8, (topic.topic_id, 0, {(5, 6): [ACCEPT], (6, 7): [ACCEPT]}))
    ask("not handed out", 9, said((50, 51), ACCEPT))
    ask("a negative offset", 10, said((-2, -1), ACCEPT))
    ask("a partition of which it has none", 11, said((0, 0), ACCEPT, partition=1))
    ask("a partition that is missing", 12, said((0, 0), ACCEPT, partition=7))
    ask("a topic that is missing", 13, (NO_TOPIC, 0, {(0, 0): [ACCEPT]}))
    ask("no types", 14, said((5, 5)))
    ask("nothing", 15)
    ask("an epoch that is wrong", 99, said((5, 5), ACCEPT))
    ask("begins no session", 0, said((5, 5), ACCEPT))
    ask("an epoch that is none", -2, said((5, 5), ACCEPT))
    ask("no group", 16, said((5, 5), ACCEPT), group_id="")
    ask("no member", 16, said((5, 5), ACCEPT), member_id="")
    ask("a stranger", 1, said((5, 5), ACCEPT), member_id="stranger")
    if side.version >= 2:
        ask("renewed", 16, said((5, 5), RENEW), is_renew_ack=True)
        ask("renewed without saying so", 17, said((5, 5), RENEW))
    ask("ends", -1, said((5, 5), ACCEPT))
    ask("the session is over", 18, said((6, 6), ACCEPT))
