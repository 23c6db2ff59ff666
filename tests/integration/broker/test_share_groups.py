"""Share groups on a running broker, by bare requests: each answer is looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.share_groups.share_partition import ACCEPT, REJECT, RELEASE, RENEW
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from appliance.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from appliance.wire.messages.list_groups import ListGroupsRequest
from appliance.wire.messages.share_group_describe import ShareGroupDescribeRequest
from tests.support.broker import RunningCluster, running_cluster
from tests.support.requests import batch_of, new_topic, produce
from tests.support.share_member import ShareMember, configure_group, until

PROPERTIES = {
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("shares"), properties=PROPERTIES) as running:
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port) as open_one:
        yield open_one


@pytest.fixture
def topic(connection: Connection) -> CreatableTopicResult:
    made = new_topic(connection)
    assert produce(connection, made, batch_of(*(b"%d" % number for number in range(10)))).error_code == 0
    return made


@pytest.fixture
def group(connection: Connection) -> str:
    name = f"share-{next(_numbers)}"
    configure_group(connection, name, auto_offset_reset="earliest", record_lock_duration_ms="1000")
    return name


@pytest.fixture
def join(cluster: RunningCluster, group: str, topic: CreatableTopicResult) -> Iterator[Callable[[], ShareMember]]:
    members: list[ShareMember] = []

    def join() -> ShareMember:
        member = ShareMember(("127.0.0.1", cluster.brokers[1].port), group, topic.name)
        members.append(member)
        member.join()
        return member

    yield join
    for each in members:
        each.close()


def offsets(connection: Connection, group: str) -> dict[int, tuple[int, int]]:
    """Start offset and lag by partition, of the one topic."""
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    (answer,) = connection.call(DescribeShareGroupOffsetsRequest(groups=[wanted])).groups
    assert answer.error_code == 0, answer
    return {row.partition_index: (row.start_offset, row.lag) for each in answer.topics for row in each.partitions}


def test_records_are_handed_out_once_and_again_when_they_are_released(join: Callable[[], ShareMember]) -> None:
    one, other = join(), join()
    taken = one.take()
    assert {offset: value for offset, (value, _) in taken.items()} == {n: b"%d" % n for n in range(10)}
    assert {count for _, count in taken.values()} == {1}
    assert other.take(max_wait_ms=50) == {}
    said = {(0, 3): ACCEPT, (4, 5): RELEASE, (6, 6): REJECT}
    assert one.say(said) is ErrorCode.NONE
    assert {offset: count for offset, (_, count) in other.take().items()} == {4: 2, 5: 2}
    assert one.say({(0, 3): ACCEPT, (4, 4): ACCEPT}) is ErrorCode.INVALID_RECORD_STATE
    assert one.say({(8, 12): ACCEPT}) is ErrorCode.INVALID_REQUEST
    assert other.say({(4, 5): ACCEPT}) is ErrorCode.NONE


def test_whose_lock_is_over_has_lost_the_record_and_who_renews_keeps_it(join: Callable[[], ShareMember]) -> None:
    one, other = join(), join()
    assert len(one.take()) == 10
    deliveries: dict[int, int] = {}

    def others() -> bool:
        # Renewed well within the second that a lock lasts.
        assert one.say({(9, 9): RENEW}, is_renew_ack=True) is ErrorCode.NONE
        deliveries.update({offset: count for offset, (_, count) in other.take(max_wait_ms=100).items()})
        return len(deliveries) == 9

    until(others)
    assert deliveries == dict.fromkeys(range(9), 2)
    assert one.say({(0, 0): ACCEPT}) is ErrorCode.INVALID_RECORD_STATE
    assert one.say({(9, 9): ACCEPT}) is ErrorCode.NONE


def test_a_record_is_handed_out_as_often_as_the_limit_says(
    join: Callable[[], ShareMember], connection: Connection, group: str
) -> None:
    configure_group(connection, group, delivery_count_limit="2")
    member = join()
    assert len(member.take()) == 10
    assert member.say({(0, 9): RELEASE}) is ErrorCode.NONE
    assert {count for _, count in member.take().values()} == {2}
    assert member.say({(0, 9): RELEASE}) is ErrorCode.NONE
    assert member.take(max_wait_ms=50) == {}
    assert until(lambda: offsets(connection, group) == {0: (10, 0)})


def test_what_a_member_has_is_free_when_its_session_or_connection_ends(join: Callable[[], ShareMember]) -> None:
    one, other, third = join(), join(), join()
    assert len(one.take()) == 10
    one.end_session()
    assert len(other.take()) == 10
    other.close()
    assert len(third.take(max_wait_ms=20_000)) == 10


def test_a_fetch_waits_for_records_and_says_what_became_of_earlier_ones(
    join: Callable[[], ShareMember], connection: Connection, topic: CreatableTopicResult, group: str
) -> None:
    member = join()
    assert len(member.take(max_records=10)) == 10
    answer = member.ask(said={(0, 9): ACCEPT}, max_wait_ms=0)
    (row,) = answer.responses[0].partitions
    assert (row.acknowledge_error_code, row.acquired_records, answer.acquisition_lock_timeout_ms) == (0, [], 1000)
    assert produce(connection, topic, batch_of(b"later")).error_code == 0
    assert {offset: value for offset, (value, _) in member.take(max_wait_ms=20_000).items()} == {10: b"later"}
    assert member.say({(10, 10): ACCEPT}) is ErrorCode.NONE
    assert offsets(connection, group) == {0: (11, 0)}


def test_with_the_record_limit_exactly_so_many_are_handed_out(join: Callable[[], ShareMember]) -> None:
    one, other = join(), join()
    assert sorted(one.take(max_records=3, share_acquire_mode=1)) == [0, 1, 2]
    assert sorted(other.take(max_records=3)) == list(range(3, 10)), "whole batches"


def test_session_epochs_are_checked(join: Callable[[], ShareMember]) -> None:
    member = join()
    assert member.ask(epoch=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.ask(said={(0, 0): ACCEPT}).error_code == ErrorCode.INVALID_REQUEST
    assert len(member.take()) == 10
    assert member.ask(epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.say({}, epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.say({(0, 9): RENEW}) is ErrorCode.INVALID_REQUEST, "not said at the top"


def test_offsets_are_described_altered_and_deleted(
    join: Callable[[], ShareMember], connection: Connection, topic: CreatableTopicResult, group: str
) -> None:
    member = join()
    alter = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic.name,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=4)],
            )
        ],
    )
    assert connection.call(alter).error_code == ErrorCode.NON_EMPTY_GROUP
    assert len(member.take()) == 10
    member.end_session()
    member.leave()
    answer = connection.call(alter)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    assert offsets(connection, group)[0][0] == 4
    again = join()
    assert sorted(again.take()) == [4, 5, 6, 7, 8, 9]
    again.end_session()
    again.leave()
    rows = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in (topic.name, "nowhere")]
    deleted = connection.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=rows))
    assert [row.error_code for row in deleted.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets(connection, group) == {}


def test_the_group_is_listed_described_and_deleted(
    join: Callable[[], ShareMember], connection: Connection, topic: CreatableTopicResult, group: str
) -> None:
    member = join()
    listed = {row.group_id: row for row in connection.call(ListGroupsRequest(types_filter=["share"])).groups}
    assert (listed[group].group_type, listed[group].protocol_type, listed[group].group_state) == (
        "share", "share", "Stable",
    )  # fmt: skip
    (described,) = connection.call(ShareGroupDescribeRequest(group_ids=[group])).groups
    assert (described.assignor_name, [each.member_id for each in described.members]) == ("simple", [member.member_id])
    assert described.members[0].assignment.topic_partitions[0].topic_name == topic.name
    classic = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert connection.call(classic).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = connection.call(DeleteGroupsRequest(groups_names=[group])).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    (deleted,) = connection.call(DeleteGroupsRequest(groups_names=[group])).results
    assert deleted.error_code == 0
    (gone,) = connection.call(ShareGroupDescribeRequest(group_ids=[group])).groups
    assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    member.epoch = 0
    member.join()


def test_the_state_outlives_a_restart(tmp_path: Path) -> None:
    with running_cluster(tmp_path, properties=PROPERTIES) as cluster:
        port = cluster.brokers[1].port
        with Connection("127.0.0.1", port) as connection:
            topic = new_topic(connection)
            assert produce(connection, topic, batch_of(*(b"%d" % number for number in range(6)))).error_code == 0
            configure_group(connection, "g", auto_offset_reset="earliest")
        member = ShareMember(("127.0.0.1", port), "g", topic.name)
        member.join()
        assert len(member.take()) == 6
        assert member.say({(0, 1): ACCEPT, (2, 2): RELEASE, (4, 4): ACCEPT}) is ErrorCode.NONE
        member.close()
        cluster.brokers[1].stop()
        cluster.start_broker(1, port).wait_until_ready()
        again = ShareMember(("127.0.0.1", port), "g", topic.name, member.member_id)
        again.join()
        # 3 and 5 were in the member's hands when it went without a word.
        taken = again.take(max_wait_ms=10_000)
        assert sorted(taken) == [2, 3, 5]
        assert taken[2][1] == 2
        again.close()


def test_the_state_goes_with_the_leaders_and_lies_with_any_broker(tmp_path: Path) -> None:
    properties = {**PROPERTIES, "share.coordinator.state.topic.min.isr": "1"}
    with running_cluster(tmp_path, brokers=2, properties=properties) as cluster:
        ports = {number: broker.port for number, broker in cluster.brokers.items()}
        groups = [f"g{number}" for number in range(6)]
        with Connection("127.0.0.1", ports[2]) as connection:
            topic = new_topic(connection, replicas=2, configs={"min.insync.replicas": "1"})
            for group in groups:
                configure_group(connection, group, auto_offset_reset="earliest")
        members = [ShareMember(("127.0.0.1", ports[2]), group, topic.name) for group in groups]
        records = batch_of(*(b"%d" % number for number in range(6)))
        leader = members[0].to_leader(0)
        assert produce(leader, topic, records, acks=-1).error_code == 0
        for member in members:
            member.join()
            assert sorted(member.take()) == list(range(6))
            assert member.say({(0, 2): ACCEPT, (5, 5): RELEASE}) is ErrorCode.NONE
        (gone,) = [number for number, port in ports.items() if port == leader.port]
        (left,) = ports.keys() - {gone}
        for member in members:
            member.close()
        cluster.brokers[gone].stop()
        for group in groups:
            again = ShareMember(("127.0.0.1", ports[left]), group, topic.name)
            again.join()
            taken: dict[int, int] = {}

            def all_taken(again: ShareMember = again, taken: dict[int, int] = taken) -> bool:
                taken.update({offset: count for offset, (_, count) in again.take(max_wait_ms=1_000).items()})
                return len(taken) >= 3

            until(all_taken)
            assert sorted(taken) == [3, 4, 5]
            assert taken[5] == 2
            again.close()
        cluster.start_broker(gone, ports[gone]).wait_until_ready()
