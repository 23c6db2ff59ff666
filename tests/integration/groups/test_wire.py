"""All versions of the APIs of groups over a socket, as the newest and the oldest clients speak them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.delete_groups import DeleteGroupsRequest
from appliance.wire.messages.describe_groups import DescribeGroupsRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from appliance.wire.messages.heartbeat import HeartbeatRequest
from appliance.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from appliance.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from appliance.wire.messages.list_groups import ListGroupsRequest
from appliance.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
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
from tests.support.broker import RunningCluster
from tests.support.group_clients import wait_until
from tests.support.requests import new_topic

GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture(scope="module")
def connections(cluster: RunningCluster) -> Iterator[dict[int, Connection]]:
    """A connection to each broker, by id."""
    opened = {
        broker_id: Connection("127.0.0.1", broker.port, client_id="wire", timeout_ms=10_000)
        for broker_id, broker in cluster.brokers.items()
    }
    yield opened
    for connection in opened.values():
        connection.close()


class Coordinator:
    """The way to the coordinator of a group."""

    def __init__(self, connections: dict[int, Connection], group_id: str) -> None:
        self.group_id = group_id
        found = self._find(connections)
        self.connection = connections[found.node_id]
        self.elsewhere = next(each for broker_id, each in connections.items() if broker_id != found.node_id)
        wait_until(lambda: self.describe().error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _find(self, connections: dict[int, Connection]) -> Any:
        request = FindCoordinatorRequest(coordinator_keys=[self.group_id])
        wait_until(lambda: connections[1].call(request, 6).coordinators[0].error_code == ErrorCode.NONE)
        return connections[1].call(request, 6).coordinators[0]

    def describe(self, version: int = 6) -> Any:
        return self.connection.call(DescribeGroupsRequest(groups=[self.group_id]), version).groups[0]

    def join(self, version: int, member_id: str = "") -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"opaque")],
        )
        response: JoinGroupResponse = self.connection.call(request, version)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(version, response.member_id)
        return response

    def commit(
        self, topic: Any, offset: int, version: int = 9, member_id: str = "", generation_id: int = -1
    ) -> OffsetCommitResponse:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=0, committed_metadata="text"
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            topics=[OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[partition])],
        )
        response: OffsetCommitResponse = self.connection.call(request, version)
        return response


@pytest.fixture
def coordinator(connections: dict[int, Connection], request: pytest.FixtureRequest) -> Coordinator:
    return Coordinator(connections, request.node.name)


def test_every_version_is_advertised(connections: dict[int, Connection]) -> None:
    served = {
        api.api_key: (api.min_version, api.max_version)
        for api in connections[1]
        .call(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        .api_keys
    }
    assert {key: served[key] for key in (8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47)} == {
        8: (0, 10),
        9: (0, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        42: (0, 2),
        47: (0, 0),
    }


@pytest.mark.parametrize("version", range(7))
def test_every_broker_names_the_same_coordinator(
    cluster: RunningCluster, connections: dict[int, Connection], coordinator: Coordinator, version: int
) -> None:
    keys = [coordinator.group_id, "another"] if version >= 4 else []
    request = FindCoordinatorRequest(key="" if keys else coordinator.group_id, coordinator_keys=keys)
    answers = [connection.call(request, version) for connection in connections.values()]
    assert answers[0] == answers[1]
    found: Any = answers[0].coordinators[0] if keys else answers[0]
    assert found.error_code == ErrorCode.NONE
    assert found.port == cluster.brokers[found.node_id].port
    assert not keys or [each.key for each in answers[0].coordinators] == keys


def test_who_has_no_coordinator_here_is_told_so(connections: dict[int, Connection]) -> None:
    def find(key_type: int, version: int) -> FindCoordinatorResponse:
        keys = ["k"] if version >= 4 else []
        request = FindCoordinatorRequest(key="" if keys else "k", key_type=key_type, coordinator_keys=keys)
        response: FindCoordinatorResponse = connections[1].call(request, version)
        return response

    assert find(TRANSACTION, 1).error_code == ErrorCode.NONE
    assert find(TRANSACTION, 6).coordinators[0].error_code == ErrorCode.NONE
    assert find(SHARE, 6).coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert find(99, 6).coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(10))
def test_a_members_life_in_every_version(coordinator: Coordinator, version: int) -> None:
    connection, group_id = coordinator.connection, coordinator.group_id
    joined = coordinator.join(version)
    assert (joined.error_code, joined.protocol_name, joined.leader) == (0, "range", joined.member_id)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"opaque")]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    sync_version = min(version, 5)
    synced = connection.call(
        SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all of it")],
        ),
        sync_version,
    )
    assert (synced.error_code, synced.assignment) == (0, b"all of it")
    beating = HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)
    assert connection.call(beating, min(version, 4)).error_code == ErrorCode.NONE
    described = coordinator.describe(min(version, 6))
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members[0].member_assignment == b"all of it"
    leave_version = min(version, 5)
    leaving = LeaveGroupRequest(group_id=group_id, member_id=joined.member_id)
    if leave_version >= 3:
        leaving = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=joined.member_id)])
    left = connection.call(leaving, leave_version)
    assert left.error_code == ErrorCode.NONE
    assert [member.error_code for member in left.members] == ([0] if leave_version >= 3 else [])
    assert connection.call(beating, min(version, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(coordinator: Coordinator, version: int) -> None:
    topic = new_topic(coordinator.connection)
    (answered,) = coordinator.commit(topic, version, version).topics
    assert (answered.name, answered.partitions[0].error_code) == ("" if version >= 10 else topic.name, 0)
    fetched = coordinator.connection.call(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=coordinator.group_id,
                    topics=[OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])],
                )
            ]
        ),
        8,
    )
    (partition,) = fetched.groups[0].topics[0].partitions
    assert (partition.committed_offset, partition.metadata) == (version, "text")
    assert partition.committed_leader_epoch == (0 if version >= 6 else -1)


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_one_group_are_fetched_in_every_version(coordinator: Coordinator, version: int) -> None:
    topic = new_topic(coordinator.connection, partitions=2)
    coordinator.commit(topic, 42)
    named = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0, 1])]
    fetched = coordinator.connection.call(OffsetFetchRequest(group_id=coordinator.group_id, topics=named), version)
    assert fetched.error_code == ErrorCode.NONE
    parts = fetched.topics[0].partitions
    assert [(part.committed_offset, part.metadata) for part in parts] == [(42, "text"), (-1, "")]
    assert parts[0].committed_leader_epoch == (0 if version >= 5 else -1)
    if version >= 2:
        everything = coordinator.connection.call(
            OffsetFetchRequest(group_id=coordinator.group_id, topics=None), version
        )
        assert [len(each.partitions) for each in everything.topics] == [1]
    refused = coordinator.elsewhere.call(OffsetFetchRequest(group_id=coordinator.group_id, topics=named), version)
    if version >= 2:
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
    else:
        assert {part.error_code for part in refused.topics[0].partitions} == {ErrorCode.NOT_COORDINATOR}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_many_groups_are_fetched_in_every_version(coordinator: Coordinator, version: int) -> None:
    topic = new_topic(coordinator.connection)
    coordinator.commit(topic, 42)
    named = [OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=[0])]
    wanted = [
        OffsetFetchRequestGroup(group_id=coordinator.group_id, topics=named),
        OffsetFetchRequestGroup(group_id=coordinator.group_id, topics=None),
    ]
    fetched = coordinator.connection.call(OffsetFetchRequest(groups=wanted), version)
    for group in fetched.groups:
        assert (group.group_id, group.error_code) == (coordinator.group_id, 0)
        (found,) = group.topics
        assert found.partitions[0].committed_offset == 42
        assert (found.name == topic.name) == (version < 10)
        assert (found.topic_id == topic.topic_id) == (version >= 10)
    refused = coordinator.elsewhere.call(OffsetFetchRequest(groups=wanted[:1]), version)
    assert refused.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_what_does_not_exist_is_an_error_of_its_partition_alone(coordinator: Coordinator) -> None:
    topic = new_topic(coordinator.connection)
    gone = new_topic(coordinator.connection)
    gone.topic_id = type(gone.topic_id)(int=12345)
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in (0, 9)]
    request = OffsetCommitRequest(
        group_id=coordinator.group_id,
        topics=[
            OffsetCommitRequestTopic(topic_id=gone.topic_id, partitions=partitions[:1]),
            OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=partitions),
        ],
    )
    unknown, known = coordinator.connection.call(request, 10).topics
    assert [part.error_code for part in unknown.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert [(part.partition_index, part.error_code) for part in known.partitions] == [
        (0, ErrorCode.NONE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    wanted = [OffsetFetchRequestTopics(topic_id=each.topic_id, partition_indexes=[0]) for each in (gone, topic)]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=coordinator.group_id, topics=wanted)])
    found = {each.topic_id: each.partitions[0] for each in coordinator.connection.call(asked, 10).groups[0].topics}
    assert found[gone.topic_id].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found[topic.topic_id].committed_offset == 7


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(coordinator: Coordinator, version: int) -> None:
    coordinator.commit(new_topic(coordinator.connection), 1)
    states = ["empty"] if version >= 4 else []
    types = ["classic"] if version >= 5 else []
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    listed = {group.group_id: group for group in coordinator.connection.call(request, version).groups}
    mine = listed[coordinator.group_id]
    assert mine.group_state == ("Empty" if version >= 4 else "")
    assert mine.group_type == ("classic" if version >= 5 else "")
    assert coordinator.group_id not in {group.group_id for group in coordinator.elsewhere.call(request, version).groups}


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead_or_not_found(coordinator: Coordinator, version: int) -> None:
    described = coordinator.describe(version)
    assert described.group_state == "Dead"
    assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    elsewhere = coordinator.elsewhere.call(DescribeGroupsRequest(groups=[coordinator.group_id]), version).groups[0]
    assert elsewhere.error_code == ErrorCode.NOT_COORDINATOR


def test_operations_are_told_to_those_who_ask(coordinator: Coordinator) -> None:
    coordinator.commit(new_topic(coordinator.connection), 1)
    asked = DescribeGroupsRequest(groups=[coordinator.group_id], include_authorized_operations=True)
    assert coordinator.connection.call(asked, 6).groups[0].authorized_operations == 3_400
    assert coordinator.describe().authorized_operations == -(2**31)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(coordinator: Coordinator, version: int) -> None:
    coordinator.commit(new_topic(coordinator.connection), 1)
    request = DeleteGroupsRequest(groups_names=[coordinator.group_id, "nobody", coordinator.group_id])
    here = {each.group_id: each.error_code for each in coordinator.connection.call(request, version).results}
    assert here[coordinator.group_id] == ErrorCode.NONE
    assert here["nobody"] in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
    assert coordinator.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.connection.call(DeleteGroupsRequest(), version).results == []


def test_offsets_are_deleted(coordinator: Coordinator) -> None:
    topic = new_topic(coordinator.connection)
    coordinator.commit(topic, 1)
    request = OffsetDeleteRequest(
        group_id=coordinator.group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic.name,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 7)],
            )
        ],
    )
    (answered,) = coordinator.connection.call(request, 0).topics
    assert [(part.partition_index, part.error_code) for part in answered.partitions] == [
        (0, ErrorCode.NONE),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert coordinator.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_requests_to_the_wrong_broker_are_sent_away(coordinator: Coordinator) -> None:
    elsewhere = coordinator.elsewhere
    topic = new_topic(elsewhere)
    group_id = coordinator.group_id
    joining = JoinGroupRequest(group_id=group_id, session_timeout_ms=6_000, protocol_type="consumer")
    for request in (
        joining,
        SyncGroupRequest(group_id=group_id, protocol_type="consumer", protocol_name="range"),
        HeartbeatRequest(group_id=group_id),
        LeaveGroupRequest(group_id=group_id),
        OffsetDeleteRequest(group_id=group_id),
    ):
        assert elsewhere.call(request).error_code == ErrorCode.NOT_COORDINATOR
    coordinator.connection, coordinator.elsewhere = elsewhere, coordinator.connection
    assert coordinator.commit(topic, 1).topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_a_member_that_waits_does_not_hold_up_other_connections(
    cluster: RunningCluster, connections: dict[int, Connection], coordinator: Coordinator
) -> None:
    first = coordinator.join(9)
    sync = SyncGroupRequest(
        group_id=coordinator.group_id,
        generation_id=first.generation_id,
        member_id=first.member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    assert coordinator.connection.call(sync).error_code == ErrorCode.NONE
    port = cluster.brokers[1 if coordinator.connection is connections[1] else 2].port
    with Connection("127.0.0.1", port, client_id="second", timeout_ms=10_000) as waiting:
        required = waiting.call(
            JoinGroupRequest(
                group_id=coordinator.group_id,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            9,
        )
        assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
        leaving = LeaveGroupRequest(group_id=coordinator.group_id, members=[MemberIdentity(member_id=first.member_id)])
        assert coordinator.connection.call(leaving).members[0].error_code == ErrorCode.NONE
        newcomer = Coordinator(connections, coordinator.group_id)
        newcomer.connection = waiting
        assert newcomer.join(9, required.member_id).error_code == ErrorCode.NONE
