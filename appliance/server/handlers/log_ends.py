"""ReplicaLogEnds, our own: how far the replicas of this broker go, whoever led them (rule P10).

- A partition of which this broker has not heard yet that nobody leads it, or whose log is being cut or opened, is
  answered with an error that will be over soon.
- KAFKA_STORAGE_ERROR: the log is out of service.
"""

from __future__ import annotations

import uuid
from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.server.context import Broker
from appliance.server.requests import Request
from appliance.wire.messages.internal_metadata import (
    ReplicaLogEndsPartition,
    ReplicaLogEndsRequest,
    ReplicaLogEndsResponse,
    ReplicaLogEndsRow,
    ReplicaLogEndsTopicRows,
)


def replica_log_ends(broker: Broker, request: Request) -> ReplicaLogEndsResponse:
    body = cast(ReplicaLogEndsRequest, request.body)
    # What a log holds is true without a lease.
    request.connection.without_lease = True
    response = ReplicaLogEndsResponse(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    for topic in body.topics:
        rows = [_row(broker, topic.topic_id, wanted) for wanted in topic.partitions]
        response.topics.append(ReplicaLogEndsTopicRows(topic_id=topic.topic_id, partitions=rows))
    return response


def _row(broker: Broker, topic_id: uuid.UUID, wanted: ReplicaLogEndsPartition) -> ReplicaLogEndsRow:
    row = ReplicaLogEndsRow(partition=wanted.partition)
    try:
        row.last_epoch, row.log_end_offset = _end_of(broker, topic_id, wanted)
    except KafkaError as error:
        row.error_code = error.code
    return row


def _end_of(broker: Broker, topic_id: uuid.UUID, wanted: ReplicaLogEndsPartition) -> tuple[int, int]:
    """Epoch of the last record, and the end. Raises: KafkaError."""
    hosted = broker.partitions.get_by_id(topic_id, wanted.partition)
    if hosted is None:
        raise KafkaError(broker.partitions.absence_of(topic_id, wanted.partition))
    if hosted.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if hosted.cutting or hosted.leader_epoch < wanted.leader_epoch:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if hosted.leader_epoch > wanted.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    # What its last leader has sent may wait for the end of the tick.
    broker.partitions.write_now(hosted)
    if hosted.offline:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    end_offset = hosted.log_end_offset
    return (hosted.log.leader_epochs.epoch_for(end_offset - 1) if end_offset > 0 else -1), end_offset
