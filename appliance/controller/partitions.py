"""CreatePartitions: a topic gets more partitions."""

from __future__ import annotations

from collections import Counter

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.image import MetadataImage
from appliance.controller.placement import place
from appliance.controller.records import PartitionChanged, Record
from appliance.controller.topics import MAX_PARTITIONS_PER_REQUEST, check_assignment, new_partition
from appliance.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(request: CreatePartitionsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """One row for each name, in the request's order."""
    counts = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    rows: list[CreatePartitionsTopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        row = CreatePartitionsTopicResult(name=topic.name)
        rows.append(row)
        try:
            if counts[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic {topic.name} stands in the request more than once")
            records += _grow(topic, image, rules, MAX_PARTITIONS_PER_REQUEST - len(records))
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
    return answer(CreatePartitionsResponse(results=rows), [] if request.validate_only else records)


def _grow(topic: CreatePartitionsTopic, image: MetadataImage, rules: Rules, budget: int) -> list[Record]:
    state = image.topics.get(topic.name)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name}")
    present = len(state.partitions)
    if topic.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {present} partitions; {topic.count} would not be more",
        )
    added = topic.count - present
    if added > budget:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"a request may create {MAX_PARTITIONS_PER_REQUEST} partitions, this one wants more",
        )
    replication_factor = len(state.partitions[0].replicas)
    if topic.assignments is None:
        replicas = place(image, added, replication_factor, rules.randomness, first=present)
    else:
        if len(topic.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{len(topic.assignments)} assignments for {added} new partitions",
            )
        for assignment in topic.assignments:
            check_assignment(assignment.broker_ids, image)
            if len(assignment.broker_ids) != replication_factor:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"topic {topic.name} has replication factor {replication_factor}",
                )
        replicas = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    return [
        PartitionChanged(state.topic_id, new_partition(number, brokers, image))
        for number, brokers in enumerate(replicas, start=present)
    ]
