"""How partitions are: what `appliance status` and the metrics count."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.controller.decisions import Rules
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage
from appliance.controller.records import NO_LEADER, PartitionState


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """Counts over all partitions."""

    partitions: int = 0
    offline: int = 0
    """Nobody leads them."""
    under_replicated: int = 0
    """Fewer are in sync than there are replicas, those that are only being added left out."""
    under_min_isr: int = 0
    """Too few are in sync for acks=all."""
    reassigning: int = 0
    data_lost: int = 0
    """Their only replica came back empty: they wait for an operator."""
    preferred_away: int = 0
    """Another than the first replica leads."""


def partition_health(image: MetadataImage, rules: Rules, leader: int | None = None) -> PartitionHealth:
    """Looks at every partition, or at those that this broker leads: ask once for each image."""
    outcome = Outcome(image, rules)
    partitions = offline = missing = below = reassigning = lost = away = 0
    for topic in image.topics.values():
        least = outcome.min_insync_replicas(topic)
        for partition in topic.partitions:
            if leader not in (None, partition.leader):
                continue
            partitions += 1
            offline += partition.leader == NO_LEADER
            missing += is_under_replicated(partition)
            below += len(partition.isr) < min(least, len(partition.replicas))
            reassigning += bool(partition.adding or partition.removing)
            lost += partition.data_lost
            away += partition.leader not in (NO_LEADER, partition.replicas[0])
    return PartitionHealth(partitions, offline, missing, below, reassigning, lost, away)


def is_under_replicated(partition: PartitionState) -> bool:
    """As Kafka counts it while replicas are being added."""
    return len(partition.isr) < len(partition.replicas) - len(partition.adding)
