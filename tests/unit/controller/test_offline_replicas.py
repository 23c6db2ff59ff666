"""A broker that cannot serve some of its replicas leaves their ISRs."""

from __future__ import annotations

import uuid
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.controller.image import MetadataImage
from appliance.controller.offline_replicas import replicas_offline
from appliance.controller.records import PartitionChanged, PartitionState, TopicConfigSet, TopicCreated
from appliance.wire.messages.internal_metadata import ReplicasOfflineRequest, ReplicasOfflineTopic
from tests.support.metadata import after, cluster, committed, rules

TOPIC = uuid.UUID(int=7, version=4)
LEADER, OTHER = 1, 2


def with_partitions(*isrs: tuple[int, ...], **fields: Any) -> MetadataImage:
    states = [
        PartitionState(
            **{
                "partition": number,
                "leader": isr[0],
                "leader_epoch": 5,
                "partition_epoch": 8,
                "replicas": (1, 2, 3),
                "isr": isr,
                **fields,
            }
        )
        for number, isr in enumerate(isrs)
    ]
    changes = [PartitionChanged(TOPIC, state) for state in states]
    return after(
        cluster(1, 2, 3), TopicCreated("t", TOPIC), TopicConfigSet(TOPIC, "min.insync.replicas", "2"), *changes
    )


def tell(image: MetadataImage, *partitions: int, sender: int = LEADER, epoch: int | None = None) -> tuple[int, Any]:
    request = ReplicasOfflineRequest(
        broker_id=sender,
        broker_epoch=image.brokers[sender].broker_epoch if epoch is None else epoch,
        topics=[ReplicasOfflineTopic(topic_id=TOPIC, partitions=list(partitions))],
    )
    response, image = committed(image, replicas_offline(request, image, rules()))
    return response.error_code, image


def row(image: MetadataImage, partition: int = 0) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    state = image.topics["t"].partitions[partition]
    return state.leader, state.leader_epoch, state.isr, state.elr


def test_another_replica_leads_and_what_failed_may_not_be_elected() -> None:
    code, image = tell(with_partitions((1, 2), (1, 2)), 0)
    assert code == 0
    assert row(image) == (2, 6, (2,), ()), "the failed log is none that counts, though too few are in sync"
    assert row(image, 1) == (1, 5, (1, 2), ()), "the others go on"


def test_a_follower_leaves_without_a_new_leader() -> None:
    _, image = tell(with_partitions((2, 1, 3)), 0)
    assert row(image) == (2, 5, (2, 3), ())
    assert image.topics["t"].partitions[0].partition_epoch == 9


def test_who_is_alone_in_sync_stays_and_nothing_is_committed() -> None:
    image = with_partitions((1,), (2, 3))
    code, later = tell(image, 0, 1)
    assert code == 0 and later is image


def test_what_is_unknown_is_passed_over() -> None:
    image = with_partitions((1, 2))
    assert tell(image, 17)[1] is image


def test_an_earlier_process_is_not_believed() -> None:
    image = with_partitions((1, 2))
    code, later = tell(image, 0, epoch=image.brokers[LEADER].broker_epoch - 1)
    assert code == ErrorCode.STALE_BROKER_EPOCH and later is image


def test_who_was_alone_in_sync_gives_way_to_those_who_may_be_elected() -> None:
    _, image = tell(with_partitions((1,), elr=(2, 3)), 0)
    leader, _, isr, elr = row(image)
    assert leader == 2 and isr == (2, 3) and elr == (), "they have all that was acknowledged"


def test_who_might_have_been_elected_may_not_be_any_more() -> None:
    _, image = tell(with_partitions((3,), elr=(1, 2)), 0)
    assert row(image) == (3, 5, (3,), (2,))
