"""AlterPartitionReassignments and ListPartitionReassignments (rule P11).

While it goes on, `replicas` are the targets followed by those that will go, `adding` the new ones among them. It is
done when all targets are in the ISR (`elections.settle`); the leader hands over if it is not one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from appliance.base.errors import ErrorCode, KafkaError
from appliance.controller.decisions import Decision, Rules, answer
from appliance.controller.elections import Outcome
from appliance.controller.image import MetadataImage, TopicState
from appliance.controller.records import PartitionChanged, PartitionState, Record
from appliance.controller.topics import check_replicas
from appliance.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from appliance.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_reassignments(request: AlterPartitionReassignmentsRequest, image: MetadataImage, rules: Rules) -> Decision:
    """Every partition is judged by itself.

    INVALID_REPLICA_ASSIGNMENT: no such brokers, or a cancellation that nobody could lead after.
    INVALID_REPLICATION_FACTOR: the number of replicas would change, and the request does not allow it.
    NO_REASSIGNMENT_IN_PROGRESS: there is nothing to cancel.
    """
    outcome = Outcome(image, rules)
    records: list[Record] = []
    topics: list[ReassignableTopicResponse] = []
    seen: set[tuple[str, int]] = set()
    for wanted in request.topics:
        rows: list[ReassignablePartitionResponse] = []
        for part in wanted.partitions:
            row = ReassignablePartitionResponse(partition_index=part.partition_index, error_message=None)
            rows.append(row)
            try:
                if (wanted.name, part.partition_index) in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition stands in the request more than once")
                seen.add((wanted.name, part.partition_index))
                topic, partition = image.topics.get(wanted.name), image.partition(wanted.name, part.partition_index)
                if topic is None or partition is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
                changed = _changed(topic, partition, part, outcome, request.allow_replication_factor_change)
            except KafkaError as error:
                row.error_code, row.error_message = error.code, error.message
                continue
            if changed is not None:
                records.append(PartitionChanged(topic.topic_id, changed))
        topics.append(ReassignableTopicResponse(name=wanted.name, partitions=rows))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=topics
    )
    return answer(response, records)


def list_reassignments(
    request: ListPartitionReassignmentsRequest, image: MetadataImage
) -> ListPartitionReassignmentsResponse:
    """What is under way; of partitions that are named and rest, nothing."""
    if request.topics is None:
        wanted = {name: range(len(topic.partitions)) for name, topic in sorted(image.topics.items())}
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in request.topics}  # type: ignore[misc]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for name, numbers in wanted.items():
        rows = []
        for number in dict.fromkeys(numbers):
            partition = image.partition(name, number)
            if partition is not None and (partition.adding or partition.removing):
                rows.append(
                    OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        if rows:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=rows))
    return response


def _changed(
    topic: TopicState, partition: PartitionState, part: ReassignablePartition, outcome: Outcome, may_resize: bool
) -> PartitionState | None:
    original = tuple(b for b in partition.replicas if b not in partition.adding)
    if part.replicas is None:
        if not partition.adding and not partition.removing:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
        wanted = _moved(partition, original, (), ())
        what = "the reassignment cannot be cancelled: none of the old replicas is in sync"
    else:
        target = tuple(part.replicas)
        check_replicas(target, outcome.image)
        if not may_resize and len(target) != len(original):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the partition has {len(original)} replicas, {len(target)} are asked for",
            )
        adding = tuple(b for b in target if b not in original)
        removing = tuple(b for b in original if b not in target)
        wanted = _moved(partition, target + removing, adding, removing)
        what = "none of the replicas that would stay is in sync"
    if not wanted.isr:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    return outcome.settle(topic, partition, wanted)


def _moved(
    partition: PartitionState, replicas: Sequence[int], adding: tuple[int, ...], removing: tuple[int, ...]
) -> PartitionState:
    """With other replicas. One that an earlier reassignment was adding and that is wanted no more goes at once."""
    return msgspec.structs.replace(
        partition,
        replicas=tuple(replicas),
        isr=tuple(b for b in partition.isr if b in replicas),
        elr=tuple(b for b in partition.elr if b in replicas),
        adding=adding,
        removing=removing,
    )
