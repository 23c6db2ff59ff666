"""How partitions are counted."""

from __future__ import annotations

import uuid

from appliance.controller.health import PartitionHealth, partition_health
from appliance.controller.records import NO_LEADER, PartitionChanged, PartitionState, TopicConfigSet, TopicCreated
from tests.support.metadata import after, cluster, rules

TOPIC = uuid.UUID(int=7, version=4)


def test_each_kind_of_trouble_is_counted_and_what_is_being_added_lacks_nothing() -> None:
    states = [
        PartitionState(0, 1, 0, 0, (1, 2, 3), (1, 2, 3)),
        PartitionState(1, 2, 0, 0, (1, 2, 3), (2, 3)),
        PartitionState(2, 3, 0, 0, (3, 2, 1), (3,), elr=(2,)),
        PartitionState(3, NO_LEADER, 0, 0, (1,), (1,), data_lost=True),
        PartitionState(4, 1, 0, 0, (3, 1, 2), (1, 2), adding=(3,), removing=(2,)),
    ]
    image = after(
        cluster(1, 2, 3),
        TopicCreated("t", TOPIC),
        TopicConfigSet(TOPIC, "min.insync.replicas", "2"),
        *(PartitionChanged(TOPIC, state) for state in states),
    )
    assert partition_health(image, rules()) == PartitionHealth(
        partitions=5,
        offline=1,
        under_replicated=2,
        under_min_isr=1,
        reassigning=1,
        data_lost=1,
        preferred_away=2,
    )
    led = partition_health(image, rules(), leader=3)
    assert (led.partitions, led.under_replicated, led.under_min_isr) == (1, 1, 1)
