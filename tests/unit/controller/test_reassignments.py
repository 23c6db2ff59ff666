"""Replicas that move (rule P11), and leaders that go home."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller.image import MetadataImage
from appliance.controller.isr import alter_partition
from appliance.controller.leader_elections import elect_leaders, rebalance_leaders
from appliance.controller.reassignments import alter_reassignments, list_reassignments
from appliance.controller.records import NO_LEADER, PartitionChanged, PartitionState, TopicCreated
from appliance.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from appliance.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from appliance.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.support.metadata import after, cluster, committed, leaders, rules

TOPIC = uuid.UUID(int=7, version=4)


def with_partitions(*partitions: PartitionState, brokers: tuple[int, ...] = (1, 2, 3, 4, 5, 6)) -> MetadataImage:
    return after(cluster(*brokers), TopicCreated("t", TOPIC), *(PartitionChanged(TOPIC, state) for state in partitions))


def partition(number: int, *replicas: int, **fields: Any) -> PartitionState:
    values: dict[str, Any] = {"leader": replicas[0], "isr": replicas, **fields}
    return PartitionState(partition=number, leader_epoch=0, partition_epoch=0, replicas=replicas, **values)


def move(image: MetadataImage, replicas: list[int] | None, number: int = 0, **fields: Any) -> tuple[int, MetadataImage]:
    """Error code of the row, and the image after it."""
    row = ReassignablePartition(partition_index=number, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=fields.pop("name", "t"), partitions=[row])], **fields
    )
    response, image = committed(image, alter_reassignments(request, image, rules()))
    return response.responses[0].partitions[0].error_code, image


def joined(image: MetadataImage, *isr: int) -> tuple[int, MetadataImage]:
    """The leader asks for this ISR."""
    state = state_of(image)
    members = [BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch) for b in isr]
    data = PartitionData(
        leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch, new_isr_with_epochs=members
    )
    request = AlterPartitionRequest(
        broker_id=state.leader,
        broker_epoch=image.brokers[state.leader].broker_epoch,
        topics=[TopicData(topic_id=TOPIC, partitions=[data])],
    )
    response, image = committed(image, alter_partition(request, image, rules()))
    return response.topics[0].partitions[0].error_code, image


def state_of(image: MetadataImage, number: int = 0) -> PartitionState:
    return image.topics["t"].partitions[number]


def test_a_partition_moves_when_all_its_targets_are_in_sync() -> None:
    code, image = move(with_partitions(partition(0, 1, 2, 3)), [4, 5, 6])
    state = state_of(image)
    assert code == 0
    assert (state.replicas, state.adding, state.removing) == ((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2, 3), 0)
    _, image = joined(image, 1, 2, 3, 4, 5)
    assert state_of(image).adding
    code, image = joined(image, 1, 2, 3, 4, 5, 6)
    state = state_of(image)
    assert code == ErrorCode.NEW_LEADER_ELECTED
    assert (state.replicas, state.isr, state.adding, state.removing) == ((4, 5, 6), (4, 5, 6), (), ())
    assert (state.leader, state.leader_epoch) == (4, 1)
    assert [(e.broker_id, e.live) for e in state.earlier_leaders] == [(1, True)]


def test_a_leader_that_stays_goes_on_leading() -> None:
    _, image = move(with_partitions(partition(0, 1, 2)), [3, 1])
    code, image = joined(image, 1, 2, 3)
    assert code == 0
    assert (state_of(image).leader, state_of(image).leader_epoch, state_of(image).replicas) == (1, 0, (3, 1))


def test_fewer_replicas_or_another_order_need_no_waiting() -> None:
    _, image = move(with_partitions(partition(0, 1, 2, 3)), [3, 1])
    assert (state_of(image).replicas, state_of(image).isr, state_of(image).removing) == ((3, 1), (1, 3), ())
    _, image = move(image, [1, 3])
    assert (state_of(image).replicas, state_of(image).leader) == ((1, 3), 1)


def test_a_reassignment_is_cancelled() -> None:
    _, image = move(with_partitions(partition(0, 1, 2)), [3, 4])
    _, image = joined(image, 1, 2, 3)
    code, image = move(image, None)
    state = state_of(image)
    assert code == 0
    assert (sorted(state.replicas), state.isr, state.adding, state.removing) == ([1, 2], (1, 2), (), ())


def test_it_is_not_cancelled_while_none_of_the_old_replicas_is_in_sync() -> None:
    state = partition(0, 3, 4, 1, isr=(3,), adding=(3, 4), removing=(1,))
    assert move(with_partitions(state), None)[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_another_target_takes_the_place_of_the_one_before() -> None:
    _, image = move(with_partitions(partition(0, 1, 2)), [3, 4])
    _, image = joined(image, 1, 2, 3)
    code, image = move(image, [5, 1])
    state = state_of(image)
    assert code == 0
    assert (state.replicas, state.adding, state.removing, state.isr) == ((5, 1, 2), (5,), (2,), (1, 2))


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        ([1, 9], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1], {"number": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"name": "none"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, {}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_done_is_refused(replicas: list[int] | None, fields: dict[str, Any], code: ErrorCode) -> None:
    image = with_partitions(partition(0, 1, 2))
    refused, later = move(image, replicas, **fields)
    assert (refused, later) == (code, image)


def test_what_is_under_way_is_listed() -> None:
    image = with_partitions(partition(0, 1, 2), partition(1, 2, 3))
    assert list_reassignments(ListPartitionReassignmentsRequest(topics=None), image).topics == []
    _, image = move(image, [3, 2], number=1)
    assert list_reassignments(ListPartitionReassignmentsRequest(topics=None), image).topics == []
    _, image = move(image, [4, 3], number=1)
    (topic,) = list_reassignments(ListPartitionReassignmentsRequest(topics=None), image).topics
    (row,) = topic.partitions
    assert (row.partition_index, row.replicas, row.adding_replicas, row.removing_replicas) == (1, [4, 3, 2], [4], [2])
    named = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])
    assert list_reassignments(ListPartitionReassignmentsRequest(topics=[named]), image).topics == []


def elect(image: MetadataImage, kind: int, *numbers: int) -> tuple[list[tuple[int, int]], MetadataImage]:
    wanted = [TopicPartitions(topic="t", partitions=list(numbers))] if numbers else None
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    response, image = committed(image, elect_leaders(request, image, rules()))
    rows = [row for topic in response.replica_election_results for row in topic.partition_result]
    return [(row.partition_id, row.error_code) for row in rows], image


def test_the_preferred_leader_is_elected_where_it_can_lead() -> None:
    image = with_partitions(
        partition(0, 1, 2, leader=2),
        partition(1, 1, 2),
        partition(2, 3, 2, leader=2, isr=(2,)),
    )
    rows, image = elect(image, 0, 0, 1, 2, 9)
    assert rows == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert leaders(image, "t") == [(1, 1), (1, 0), (2, 0)]
    assert [(e.broker_id, e.live) for e in state_of(image).earlier_leaders] == [(2, True)]


def test_with_none_named_only_those_that_change_are_told() -> None:
    image = with_partitions(partition(0, 1, 2, leader=2), partition(1, 1, 2))
    assert elect(image, 0)[0] == [(0, 0)]


def test_an_unclean_election_needs_a_partition_without_a_leader_and_a_replica_that_lives() -> None:
    image = with_partitions(
        partition(0, 1, 2),
        partition(1, 1, 2, leader=NO_LEADER, isr=(9,)),
        partition(2, 8, 9, leader=NO_LEADER),
    )
    rows, image = elect(image, 1, 0, 1, 2)
    assert rows == [
        (0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, ErrorCode.NONE),
        (2, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ]
    assert (state_of(image, 1).leader, state_of(image, 1).isr) == (1, (1,))


def test_there_are_two_kinds_of_elections() -> None:
    request = ElectLeadersRequest(election_type=2, topic_partitions=None)
    image = with_partitions(partition(0, 1))
    assert committed(image, elect_leaders(request, image, rules()))[0].error_code == ErrorCode.INVALID_REQUEST


def test_leaders_go_home_when_too_many_are_away() -> None:
    away = [partition(number, 1, 2, leader=2) for number in range(2)]
    home = [partition(number, 1, 2) for number in range(2, 20)]
    image = with_partitions(*away, *home)
    tenth = rules(leader_imbalance_per_broker_percentage="10")
    assert not rebalance_leaders(image, tenth).records
    assert rebalance_leaders(image, rules()).records
    image = with_partitions(*away, partition(2, 1, 2, leader=2), *home[1:])
    _, image = committed(image, rebalance_leaders(image, tenth))
    assert {leader for leader, _ in leaders(image, "t")} == {1}
    off = rules(auto_leader_rebalance_enable="false")
    assert not rebalance_leaders(with_partitions(*away), off).records


def test_a_leader_goes_home_only_where_the_preferred_one_is_in_sync() -> None:
    image = with_partitions(partition(0, 1, 2, leader=2, isr=(2,)), partition(1, 1, 2, leader=2))
    _, image = committed(image, rebalance_leaders(image, rules()))
    assert leaders(image, "t") == [(2, 0), (1, 1)]
