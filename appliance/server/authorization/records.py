"""Rules of the APIs about records: Produce, Fetch, ListOffsets and their neighbours.

Produce and Fetch ask for each partition by themselves (`Request.access`), for their short ways never come here.
"""

from __future__ import annotations

from typing import cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode
from appliance.server.access import Access
from appliance.server.authorization.rules import (
    CLUSTER,
    DENIED,
    TOPIC,
    TRANSACTIONAL_ID,
    needs_for_each,
    refuse_rows,
)
from appliance.server.context import Broker
from appliance.server.requests import Request
from appliance.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from appliance.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from appliance.wire.messages.internal_import import ImportRecordsRequest
from appliance.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from appliance.wire.messages.produce import ProduceRequest
from appliance.wire.schema import Struct


def produce(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    transactional_id = cast(ProduceRequest, request.body).transactional_id
    if transactional_id is None or access.may(Operation.WRITE, TRANSACTIONAL_ID, transactional_id):
        return None
    return DENIED[TRANSACTIONAL_ID]


def fetch(broker: Broker, request: Request, access: Access) -> FetchResponse | None:
    """What is a replica's is the brokers'."""
    body = cast(FetchRequest, request.body)
    if max(body.replica_id, body.replica_state.replica_id) < 0 or access.may(Operation.CLUSTER_ACTION, CLUSTER):
        return None
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=each.partition, error_code=DENIED[TOPIC], high_watermark=-1)
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def offset_for_leader_epoch(broker: Broker, request: Request, access: Access) -> Struct | None:
    body = cast(OffsetForLeaderEpochRequest, request.body)
    if access.could(Operation.CLUSTER_ACTION, CLUSTER):
        return None
    if body.replica_id >= 0:
        allowed = [False] * len(body.topics)
    else:
        allowed = [access.may(Operation.DESCRIBE, TOPIC, topic.topic) for topic in body.topics]
    if all(allowed):
        return None
    return refuse_rows(request, "topics", "topics", _no_epochs, allowed, TOPIC)


def _no_epochs(request: Request, code: ErrorCode, message: str | None) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions],
            )
            for topic in cast(OffsetForLeaderEpochRequest, request.body).topics
        ]
    )


def _no_producers(request: Request, code: ErrorCode, message: str | None) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=each, error_code=code, error_message=message)
                    for each in topic.partition_indexes
                ],
            )
            for topic in cast(DescribeProducersRequest, request.body).topics
        ]
    )


describe_producers = needs_for_each(
    "topics", "topics", _no_producers, Operation.READ, TOPIC, lambda topic: str(topic.name), text=True
)


def import_records(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """Ours: offsets and times come from elsewhere, so writing alone is not enough."""
    topic = cast(ImportRecordsRequest, request.body).topic
    allowed = access.may(Operation.ALTER, TOPIC, topic) and access.may(Operation.WRITE, TOPIC, topic)
    return None if allowed else DENIED[TOPIC]
