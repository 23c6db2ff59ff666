"""AlterPartition and AllocateProducerIds."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.controller.brokers import fence
from appliance.controller.image import MetadataImage
from appliance.controller.isr import alter_partition
from appliance.controller.producer_ids import BLOCK_SIZE, allocate_producer_ids
from appliance.controller.records import LeaderRecoveryState, PartitionChanged, PartitionState, TopicCreated
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from appliance.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from tests.support.metadata import after, cluster, committed, rules

TOPIC = uuid.UUID(int=7, version=4)


def with_partition(**fields: Any) -> MetadataImage:
    state = {"partition": 0, "leader": 1, "leader_epoch": 5, "partition_epoch": 8, "replicas": (1, 2, 3), "isr": (1, 2)}
    return after(
        cluster(1, 2, 3), TopicCreated("t", TOPIC), PartitionChanged(TOPIC, PartitionState(**{**state, **fields}))
    )


def ask(
    image: MetadataImage, isr: list[int], *, sender: int = 1, topic_id: uuid.UUID = TOPIC, **fields: Any
) -> tuple[Any, MetadataImage]:
    members = [
        BrokerState(broker_id=b, broker_epoch=image.brokers[b].broker_epoch if b in image.brokers else 0) for b in isr
    ]
    data = PartitionData(**{"leader_epoch": 5, "partition_epoch": 8, "new_isr_with_epochs": members, **fields})
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=image.brokers[sender].broker_epoch,
        topics=[TopicData(topic_id=topic_id, partitions=[data])],
    )
    response, image = committed(image, alter_partition(request, image, rules()))
    return response.topics[0].partitions[0], image


def test_a_leader_takes_a_replica_into_the_isr() -> None:
    row, image = ask(with_partition(), [1, 2, 3])
    assert (row.error_code, row.isr, row.partition_epoch, row.leader_epoch) == (0, [1, 2, 3], 9, 5)
    assert image.topics["t"].partitions[0].isr == (1, 2, 3)


def test_the_partition_epoch_rises_also_for_the_same_isr() -> None:
    row, image = ask(with_partition(), [1, 2])
    assert (row.partition_epoch, image.topics["t"].partitions[0].partition_epoch) == (9, 9)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 7}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": uuid.UUID(int=8)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"sender": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 1]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 4]}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_does_not_fit_the_committed_partition_is_refused(asked: dict[str, Any], code: ErrorCode) -> None:
    image = with_partition()
    row, later = ask(image, asked.pop("isr", [1, 2]), **asked)
    assert row.error_code == code
    assert later is image


def test_a_fenced_broker_may_not_join() -> None:
    image = with_partition()
    _, image = committed(image, fence([(3, image.brokers[3].broker_epoch)], image, rules()))
    assert ask(image, [1, 2, 3])[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_an_earlier_process_of_a_broker_may_not_join() -> None:
    image = with_partition()
    members = [BrokerState(broker_id=1, broker_epoch=-1), BrokerState(broker_id=3, broker_epoch=1)]
    assert ask(image, [], new_isr_with_epochs=members)[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_reports_that_it_has_recovered() -> None:
    image = with_partition(leader_recovery_state=LeaderRecoveryState.RECOVERING, isr=(1,))
    still, image = ask(image, [1], leader_recovery_state=1)
    assert still.leader_recovery_state == LeaderRecoveryState.RECOVERING
    row, image = ask(image, [1], partition_epoch=9)
    assert row.leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert image.topics["t"].partitions[0].leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_stale_sender_is_told_so() -> None:
    image = with_partition()
    request = AlterPartitionRequest(broker_id=1, broker_epoch=image.brokers[1].broker_epoch - 1)
    assert committed(image, alter_partition(request, image, rules()))[0].error_code == ErrorCode.STALE_BROKER_EPOCH


def test_blocks_of_producer_ids_follow_each_other() -> None:
    image = cluster(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=image.brokers[1].broker_epoch)
    first, image = committed(image, allocate_producer_ids(request, image))
    second, image = committed(image, allocate_producer_ids(request, image))
    assert (first.producer_id_start, first.producer_id_len) == (0, BLOCK_SIZE)
    assert second.producer_id_start == BLOCK_SIZE
    assert image.next_producer_id == 2 * BLOCK_SIZE


@pytest.mark.parametrize(
    ("broker_id", "code"), [(1, ErrorCode.STALE_BROKER_EPOCH), (9, ErrorCode.BROKER_ID_NOT_REGISTERED)]
)
def test_who_is_not_registered_gets_no_producer_ids(broker_id: int, code: ErrorCode) -> None:
    image = cluster(1)
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=0)
    response, later = committed(image, allocate_producer_ids(request, image))
    assert response.error_code == code
    assert later is image
