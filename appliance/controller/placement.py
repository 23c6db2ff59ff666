"""Which brokers hold a new partition: evenly over brokers, and replicas of one partition over different racks.

All brokers are put into one ring in which neighbours are of different racks as far as possible, the one that leads
least first. Partition after partition, the leader is the next broker in the ring; followers are those behind it, other
racks before the leader's own. Each time round, followers begin one further on, so that the load of a lost broker falls
on all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from appliance.base.errors import ErrorCode, KafkaError
from appliance.base.randomness import Randomness
from appliance.controller.elections import may_take_over
from appliance.controller.image import BrokerState, MetadataImage


def place(
    image: MetadataImage, partitions: int, replication_factor: int, randomness: Randomness, first: int = 0
) -> list[tuple[int, ...]]:
    """Replicas of each of `partitions` new partitions, the preferred leader first; it is never a fenced broker.

    `first`: how many partitions the topic has already, so that new ones go on where those ended.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR, fewer brokers are there than replicas are wanted, or all are fenced.
    """
    if replication_factor > len(image.brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers; {len(image.brokers)} are registered",
        )
    ring = _ring(image, randomness)
    if not ring:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced or about to stop")
    # In the order of their ids: they come last, and there are too few others to spread over.
    spare = tuple(broker_id for broker_id, broker in sorted(image.brokers.items()) if not may_take_over(broker))
    spare = spare[: max(0, replication_factor - len(ring))]
    unfenced = replication_factor - len(spare)
    return [_replicas(ring, number, unfenced) + spare for number in range(first, first + partitions)]


def _ring(image: MetadataImage, randomness: Randomness) -> list[BrokerState]:
    leads: Counter[int] = Counter()
    for topic in image.topics.values():
        # By preferred leader: who leads at the moment says nothing about where the load belongs.
        leads.update(partition.replicas[0] for partition in topic.partitions)
    racks: dict[str, list[BrokerState]] = {}
    for broker in filter(may_take_over, image.live_brokers()):
        racks.setdefault(broker.rack or broker.node, []).append(broker)
    columns = []
    for brokers in racks.values():
        weighed = [(leads[broker.broker_id], randomness.uniform(0, 1), broker.broker_id, broker) for broker in brokers]
        columns.append([entry[-1] for entry in sorted(weighed, key=lambda entry: entry[:3])])
    by_weight = sorted(
        ((-len(column), leads[column[0].broker_id], randomness.uniform(0, 1), column) for column in columns),
        key=lambda entry: entry[:3],
    )
    ordered = [column for *_, column in by_weight]
    depth = max((len(column) for column in ordered), default=0)
    ring = [column[row] for row in range(depth) for column in ordered if row < len(column)]
    if ring:
        least = min(range(len(ring)), key=lambda at: leads[ring[at].broker_id])
        ring = ring[least:] + ring[:least]
    return ring


def _replicas(ring: Sequence[BrokerState], number: int, replication_factor: int) -> tuple[int, ...]:
    size = len(ring)
    leader = ring[number % size]
    if replication_factor == 1:
        return (leader.broker_id,)
    shift = number // size
    others = [ring[(number + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen, used = [leader], {leader.rack or leader.node}
    for broker in others:
        if len(chosen) < replication_factor and (broker.rack or broker.node) not in used:
            chosen.append(broker)
            used.add(broker.rack or broker.node)
    for broker in others:
        if len(chosen) < replication_factor and broker not in chosen:
            chosen.append(broker)
    return tuple(broker.broker_id for broker in chosen)
