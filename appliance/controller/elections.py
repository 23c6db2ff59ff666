"""Who leads a partition when brokers come and go (rules B3, P10).

A change returns the new state of a partition, or None when it stays as it is. A leader epoch rises at every loss of a
leader and at every election, so a process that comes back never leads under an epoch that its predecessor had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from appliance.controller.image import MetadataImage
from appliance.controller.records import (
    NO_LEADER,
    LeaderRecoveryState,
    LogState,
    PartitionChanged,
    PartitionState,
)

Change = Callable[[PartitionState], PartitionState | None]


def elect(
    partition: PartitionState, image: MetadataImage, without: frozenset[int] = frozenset()
) -> PartitionState | None:
    """A leader from the ISR in the order of the replicas, or none for the time being.

    `without`: brokers that the same commit fences.
    """

    def may_lead(broker_id: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker_id not in without

    if partition.leader != NO_LEADER and may_lead(partition.leader):
        return None
    chosen = NO_LEADER
    if not partition.data_lost:
        chosen = next((b for b in partition.replicas if b in partition.isr and may_lead(b)), NO_LEADER)
    if chosen == partition.leader:
        return None
    recovery = partition.leader_recovery_state
    if chosen != NO_LEADER and image.brokers[chosen].log_state is LogState.UNCLEAN:
        # Its tail may be lost: it reads the tier before it serves.
        recovery = LeaderRecoveryState.RECOVERING
    return msgspec.structs.replace(
        partition,
        leader=chosen,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=recovery,
    )


def lose_data(partition: PartitionState, broker_id: int) -> PartitionState | None:
    """Rule B3: a broker came back without its data. A partition that only it had in sync stays offline."""
    if partition.isr != (broker_id,) or partition.elr or partition.data_lost:
        return None
    return msgspec.structs.replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        data_lost=True,
    )


def changes(image: MetadataImage, change: Change) -> Iterator[PartitionChanged]:
    """The records that follow when every partition is asked."""
    for topic_id, topic in image.topics_by_id.items():
        for partition in topic.partitions:
            changed = change(partition)
            if changed is not None:
                yield PartitionChanged(topic_id, changed)
