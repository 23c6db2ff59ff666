"""Rules of the APIs about transactions."""

from __future__ import annotations

from typing import cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode
from appliance.server.access import Access
from appliance.server.authorization.rules import CLUSTER, DENIED, GROUP, TOPIC, TRANSACTIONAL_ID, amend
from appliance.server.context import Broker
from appliance.server.handlers.transactions import BY_BROKERS_SINCE
from appliance.server.requests import Request
from appliance.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from appliance.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from appliance.wire.messages.describe_transactions import DescribeTransactionsResponse
from appliance.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from appliance.wire.messages.list_transactions import ListTransactionsResponse
from appliance.wire.schema import Struct


def init_producer_id(broker: Broker, request: Request, access: Access) -> InitProducerIdResponse | None:
    """WRITE of the transactional id; without one, IDEMPOTENT_WRITE of the cluster or WRITE of any topic (KIP-679)."""
    transactional_id = cast(InitProducerIdRequest, request.body).transactional_id
    if transactional_id is not None:
        kind = TRANSACTIONAL_ID
        allowed = access.may(Operation.WRITE, TRANSACTIONAL_ID, transactional_id)
    else:
        kind = CLUSTER
        allowed = access.could_some(Operation.WRITE, TOPIC) or access.may(Operation.IDEMPOTENT_WRITE, CLUSTER)
    return None if allowed else InitProducerIdResponse(error_code=DENIED[kind], producer_epoch=-1)


def add_partitions(broker: Broker, request: Request, access: Access) -> Struct | ErrorCode | None:
    """WRITE of the transactional id and of each topic, all or nothing; from v4 on it is between brokers."""
    body = cast(AddPartitionsToTxnRequest, request.body)
    if request.api_version >= BY_BROKERS_SINCE:
        return None if access.may(Operation.CLUSTER_ACTION, CLUSTER) else DENIED[CLUSTER]
    if not access.may(Operation.WRITE, TRANSACTIONAL_ID, body.v3_and_below_transactional_id):
        return DENIED[TRANSACTIONAL_ID]
    topics = body.v3_and_below_topics
    denied = {topic.name for topic in topics if not access.may(Operation.WRITE, TOPIC, topic.name)}
    if not denied:
        return None

    def code_of(topic: str, partition: int) -> ErrorCode:
        if topic in denied:
            return DENIED[TOPIC]
        there = broker.image.partition(topic, partition) is not None
        return ErrorCode.OPERATION_NOT_ATTEMPTED if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=each, partition_error_code=code_of(topic.name, each)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def add_offsets(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """WRITE of the transactional id, READ of the group."""
    body = cast(AddOffsetsToTxnRequest, request.body)
    if not access.may(Operation.WRITE, TRANSACTIONAL_ID, body.transactional_id):
        return DENIED[TRANSACTIONAL_ID]
    return None if access.may(Operation.READ, GROUP, body.group_id) else DENIED[GROUP]


def write_markers(broker: Broker, request: Request, access: Access) -> ErrorCode | None:
    """Brokers, and whoever may abort a hanging transaction (KIP-664)."""
    if access.could(Operation.ALTER, CLUSTER) or access.may(Operation.CLUSTER_ACTION, CLUSTER):
        return None
    return DENIED[CLUSTER]


def hide_topics(access: Access, response: DescribeTransactionsResponse) -> None:
    """A transaction has only those topics that may be described."""
    for state in response.transaction_states:
        state.topics = [one for one in state.topics if access.could(Operation.DESCRIBE, TOPIC, one.topic)]


def list_transactions(broker: Broker, request: Request, access: Access) -> None:
    """Those that may be described."""

    def hide(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            one
            for one in response.transaction_states
            if access.could(Operation.DESCRIBE, TRANSACTIONAL_ID, one.transactional_id)
        ]

    amend(request, hide)
