"""DescribeCluster 0-2 and DescribeTopicPartitions 0 (KIP-966), both from this broker's image."""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.image import PartitionState, TopicState
from appliance.server.context import Broker
from appliance.server.handlers.metadata import is_legal_topic_name
from appliance.server.metadata_view import INTERNAL_TOPICS, some_live_broker
from appliance.server.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from appliance.server.requests import Request
from appliance.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from appliance.wire.messages.describe_topic_partitions import (
    CursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

BROKERS_ENDPOINT, CONTROLLERS_ENDPOINT = 1, 2


def describe_cluster(broker: Broker, request: Request) -> DescribeClusterResponse:
    body = cast(DescribeClusterRequest, request.body)
    image = broker.image
    if body.endpoint_type != BROKERS_ENDPOINT:
        known = body.endpoint_type == CONTROLLERS_ENDPOINT
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker; controllers have addresses of their own",
            endpoint_type=BROKERS_ENDPOINT,
        )
    wants_operations = body.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        cluster_id=image.cluster_id,
        controller_id=some_live_broker(image),
        brokers=[
            DescribeClusterBroker(
                broker_id=one.broker_id, host=endpoint.host, port=endpoint.port, rack=one.rack, is_fenced=one.fenced
            )
            for _, one in sorted(image.brokers.items())
            if (body.include_fenced_brokers or not one.fenced)
            and (endpoint := one.endpoint(request.connection.listener.name)) is not None
        ],
    )


def describe_topic_partitions(broker: Broker, request: Request) -> DescribeTopicPartitionsResponse:
    """Topics by name; a cursor leads on where an answer had to end."""
    body = cast(DescribeTopicPartitionsRequest, request.body)
    response = DescribeTopicPartitionsResponse()
    names = sorted({topic.name for topic in body.topics} or set(broker.image.topics))
    first_partition = 0
    if body.cursor is not None:
        named = {topic.name for topic in body.topics}
        if body.cursor.partition_index < 0 or (named and body.cursor.topic_name not in named):
            code = ErrorCode.INVALID_REQUEST
            response.topics = [DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names]
            return response
        names = [name for name in names if name >= body.cursor.topic_name]
        if names and names[0] == body.cursor.topic_name:
            first_partition = max(0, body.cursor.partition_index)
    left = max(1, min(body.response_partition_limit, broker.config.get("max.request.partition.size.limit")))
    for name in names:
        if left <= 0:
            response.next_cursor = CursorResponse(topic_name=name, partition_index=0)
            break
        state = broker.image.topics.get(name)
        if state is None:
            legal = is_legal_topic_name(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS
                )
            )
            continue
        partitions = state.partitions[first_partition : first_partition + left]
        response.topics.append(_topic(broker, state, partitions))
        left -= len(partitions)
        end = first_partition + len(partitions)
        if end < len(state.partitions):
            response.next_cursor = CursorResponse(topic_name=name, partition_index=end)
            break
        first_partition = 0
    return response


def _topic(
    broker: Broker, state: TopicState, partitions: tuple[PartitionState, ...]
) -> DescribeTopicPartitionsResponseTopic:
    live = {one.broker_id for one in broker.image.live_brokers()}
    return DescribeTopicPartitionsResponseTopic(
        name=state.name,
        topic_id=state.topic_id,
        is_internal=state.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if one.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=one.partition,
                leader_id=one.leader if one.leader in live else -1,
                leader_epoch=one.leader_epoch,
                replica_nodes=list(one.replicas),
                isr_nodes=list(one.isr),
                eligible_leader_replicas=list(one.elr),
                last_known_elr=[],
                offline_replicas=[replica for replica in one.replicas if replica not in live],
            )
            for one in partitions
        ],
    )
