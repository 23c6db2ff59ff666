"""What a partition's log can tell: OffsetForLeaderEpoch 0-4, DescribeProducers 0.

- OffsetForLeaderEpoch (KIP-320): where a leader epoch ended here, so that a reader finds out what was cut off.
- DescribeProducers (KIP-664): idempotent producers and open transactions.
"""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.fetch_plan import leader_epoch_error
from appliance.server.context import Broker, Partition
from appliance.server.handlers.metadata import is_legal_topic_name
from appliance.server.requests import Request
from appliance.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from appliance.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def _leading(broker: Broker, topic: str, partition: int, leader_epoch: int = -1) -> Partition:
    """The partition, if this broker leads it. Raises: KafkaError."""
    hosted = broker.partitions.get(topic, partition)
    if hosted is None:
        state = broker.image.partition(topic, partition)
        absence = broker.partitions.absence_of(topic, partition)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if state is None else absence)
    error = hosted.refusal() or leader_epoch_error(leader_epoch, hosted.leader_epoch)
    if error:
        raise KafkaError(error)
    return cast(Partition, hosted)


def _known_to_replica(broker: Broker, topic: str, wanted: OffsetForLeaderPartition, replica_id: int) -> Partition:
    """For another broker, which need not find a leader here. One that names a higher epoch ends service (P2).

    Raises: KafkaError.
    """
    hosted = broker.partitions.get(topic, wanted.partition)
    state = broker.image.partition(topic, wanted.partition)
    if hosted is None and state is not None and 0 <= wanted.current_leader_epoch <= state.leader_epoch:
        # A reassignment took the replica away: this broker has heard of the epoch, and serves none.
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if hosted is None or state is None or replica_id not in state.replicas:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.current_leader_epoch > hosted.leader_epoch:
        hosted.superseded(wanted.current_leader_epoch)
    error = leader_epoch_error(wanted.current_leader_epoch, hosted.leader_epoch)
    if error:
        raise KafkaError(error)
    return cast(Partition, hosted)


def offset_for_leader_epoch(broker: Broker, request: Request) -> OffsetForLeaderEpochResponse:
    body = cast(OffsetForLeaderEpochRequest, request.body)
    response = OffsetForLeaderEpochResponse()
    for topic in body.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            result.partitions.append(answer)
            try:
                if body.replica_id >= 0:
                    hosted = _known_to_replica(broker, topic.topic, wanted, body.replica_id)
                else:
                    hosted = _leading(broker, topic.topic, wanted.partition, wanted.current_leader_epoch)
                epoch, end_offset = hosted.log.leader_epochs.end_offset_for(wanted.leader_epoch)
                answer.leader_epoch = epoch
                answer.end_offset = min(end_offset, hosted.log_end_offset)
            except KafkaError as error:
                answer.error_code = error.code
    return response


def describe_producers(broker: Broker, request: Request) -> DescribeProducersResponse:
    body = cast(DescribeProducersRequest, request.body)
    response = DescribeProducersResponse()
    for topic in body.topics:
        result = TopicResponse(name=topic.name)
        response.topics.append(result)
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            result.partitions.append(answer)
            try:
                if not is_legal_topic_name(topic.name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no topic can be named {topic.name!r}")
                hosted = _leading(broker, topic.name, index)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
                continue
            answer.active_producers = [
                ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_first_offset,
                )
                for producer_id, entry in sorted(hosted.log.producer_state.entries.items())
            ]
    return response
