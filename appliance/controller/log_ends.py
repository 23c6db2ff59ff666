"""Whom to ask how long its log is before an unclean election, and the election itself (rule P10, KIP-966). Pure.

Nothing comes to any log while nobody leads, so what a replica says holds for as long as leader epoch and process
stay the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from appliance.controller.decisions import UNUSABLE, Decision, Rules
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage
from appliance.controller.records import NO_LEADER, PartitionChanged, Record

Part: TypeAlias = tuple[uuid.UUID, int]


@dataclass(slots=True)
class Survey:
    """What is known of the logs of partitions that nobody leads."""

    unasked: dict[int, dict[Part, int]] = field(default_factory=dict)
    """By broker: those whose end it has to tell, with their leader epoch."""
    complete: list[Part] = field(default_factory=list)
    """Those of which all has been heard, and somebody can be elected."""


def survey(image: MetadataImage, rules: Rules, parts: Iterable[Part], *, by_operator: bool = False) -> Survey:
    """Look at those of `parts` that nobody leads and whose topic, or an operator, allows unclean elections."""
    outcome, found = Outcome(image, rules), Survey()
    for part in parts:
        topic, partition = image.topics_by_id.get(part[0]), image.partition_by_id(*part)
        if topic is None or partition is None or partition.leader != NO_LEADER:
            continue
        if not by_operator and not outcome.unclean_is_allowed(topic):
            continue
        able = outcome.able(partition, by_operator=by_operator)
        if len(able) == 1:
            found.complete.append(part)
            continue
        ends = {b: outcome.log_end(topic, partition, b) for b in able}
        for broker_id in [b for b, end in ends.items() if end is None]:
            found.unasked.setdefault(broker_id, {})[part] = partition.leader_epoch
        heard = [end for end in ends.values() if end is not None]
        if len(heard) == len(able) and any(end.end_offset != UNUSABLE for end in heard):
            found.complete.append(part)
    return found


def elect_longest(image: MetadataImage, rules: Rules, parts: Iterable[Part]) -> Decision:
    """Elect where all that live have been asked."""
    outcome = Outcome(image, rules)
    records: list[Record] = []
    for part in parts:
        topic, partition = image.topics_by_id.get(part[0]), image.partition_by_id(*part)
        if topic is not None and partition is not None and partition.leader == NO_LEADER:
            changed = outcome.settle(topic, partition)
            if changed is not None:
                records.append(PartitionChanged(topic.topic_id, changed))
    return Decision(records)


def without_leader(image: MetadataImage) -> list[Part]:
    """Every partition that nobody leads."""
    return [
        (topic_id, partition.partition)
        for topic_id, topic in image.topics_by_id.items()
        for partition in topic.partitions
        if partition.leader == NO_LEADER
    ]
