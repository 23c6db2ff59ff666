"""Elections that nobody had to die for: ElectLeaders, and leaders that go back to where they belong.

A preferred leader is the first replica of a partition. Leadership that is taken from a broker that lives is handed over
(rule P1): the new leader waits until the old one knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage, TopicState
from appliance.controller.log_ends import Part
from appliance.controller.records import NO_LEADER, PartitionChanged, PartitionState, Record
from appliance.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

MOVES_PER_COMMIT = 1_000
"""Leaders that go home at a time; each move costs its clients a moment."""


class ElectionType(IntEnum):
    """What an operator asks for."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(request: ElectLeadersRequest, image: MetadataImage, rules: Rules) -> Decision:
    """Every partition is judged by itself; with none named, only those that change have a row.

    ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
    """
    if request.election_type not in tuple(ElectionType):
        return answer(ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    kind = ElectionType(request.election_type)
    outcome = Outcome(image, rules)
    records: list[Record] = []
    results: list[ReplicaElectionResult] = []
    everything = request.topic_partitions is None
    for name, numbers in _wanted(request, image):
        rows: list[PartitionResult] = []
        for number in dict.fromkeys(numbers):
            row = PartitionResult(partition_id=number, error_message=None)
            try:
                records.append(_elected(kind, name, number, outcome))
            except KafkaError as error:
                if everything and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                row.error_code, row.error_message = error.code, error.message
            rows.append(row)
        if rows or not everything:
            results.append(ReplicaElectionResult(topic=name, partition_result=rows))
    return answer(ElectLeadersResponse(replica_election_results=results), records)


def wanted_uncleanly(request: ElectLeadersRequest, image: MetadataImage) -> list[Part]:
    """The partitions whose logs have to be compared before the request is decided (rule P10)."""
    if request.election_type != ElectionType.UNCLEAN:
        return []
    return [
        (image.topics[name].topic_id, number)
        for name, numbers in _wanted(request, image)
        if name in image.topics
        for number in numbers
    ]


def _wanted(request: ElectLeadersRequest, image: MetadataImage) -> Iterable[tuple[str, list[int]]]:
    if request.topic_partitions is not None:
        wanted: dict[str, list[int]] = {}
        for topic in request.topic_partitions:
            wanted.setdefault(topic.topic, []).extend(topic.partitions)
        return wanted.items()
    return [(name, list(range(len(topic.partitions)))) for name, topic in sorted(image.topics.items())]


def _elected(kind: ElectionType, name: str, number: int, outcome: Outcome) -> PartitionChanged:
    topic, partition = outcome.image.topics.get(name), outcome.image.partition(name, number)
    if topic is None or partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
    changed = _uncleanly(topic, partition, outcome) if kind is ElectionType.UNCLEAN else None
    if kind is ElectionType.PREFERRED:
        changed = _preferred(topic, partition, outcome)
    if changed is None:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{number} needs no election")
    return PartitionChanged(topic.topic_id, changed)


def _preferred(topic: TopicState, partition: PartitionState, outcome: Outcome) -> PartitionState | None:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return None
    if preferred not in partition.isr or not outcome.may_lead(preferred) or partition.data_lost:
        reason = f"broker {preferred} is not in sync, or does not live"
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, reason)
    return outcome.settle(topic, partition, prefer=preferred)


def _uncleanly(topic: TopicState, partition: PartitionState, outcome: Outcome) -> PartitionState | None:
    if partition.leader != NO_LEADER:
        return None
    changed = outcome.settle(topic, partition, unclean=True)
    if changed is None or changed.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition lives")
    return changed


def rebalance_leaders(image: MetadataImage, rules: Rules) -> Decision:
    """`auto.leader.rebalance.enable`: who leads too little of what it should gets it back.

    A broker counts when more than `leader.imbalance.per.broker.percentage` of the partitions that prefer it are led by
    others; what cannot go back yet does not count.
    """
    config = rules.config_of(image)
    if not config.get("auto.leader.rebalance.enable"):
        return Decision()
    outcome = Outcome(image, rules)
    prefer: Counter[int] = Counter()
    away: list[tuple[TopicState, PartitionState]] = []
    for _, topic in sorted(image.topics.items()):
        for partition in topic.partitions:
            prefer[partition.replicas[0]] += 1
            if partition.leader not in (partition.replicas[0], NO_LEADER):
                away.append((topic, partition))
    missing = Counter(partition.replicas[0] for _, partition in away)
    limit = config.get("leader.imbalance.per.broker.percentage")
    due = {broker_id for broker_id, count in missing.items() if count * 100 > limit * prefer[broker_id]}
    records: list[Record] = []
    for topic, partition in away:
        preferred = partition.replicas[0]
        if preferred in due and preferred in partition.isr and outcome.may_lead(preferred):
            changed = outcome.settle(topic, partition, prefer=preferred)
            if changed is not None:
                records.append(PartitionChanged(topic.topic_id, changed))
        if len(records) >= MOVES_PER_COMMIT:
            break
    return Decision(records)
