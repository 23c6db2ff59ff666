"""An answer that says nothing but an error, in the form that each request has for it."""

from __future__ import annotations

from typing import Any

from appliance.base.errors import ErrorCode, invariant
from appliance.coordinator.calls import Answer, Call
from appliance.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from appliance.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from appliance.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from appliance.wire.schema import Struct

FENCED_IS_KNOWN_SINCE: dict[type[Struct], int] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnTransaction: 2,
    EndTxnRequest: 2,
}
"""Versions from which a client knows PRODUCER_FENCED (KIP-588); before, it is INVALID_PRODUCER_EPOCH."""


def refuse(call: Call, error: ErrorCode) -> Struct:
    """The answer to `call` with this error."""
    request: Any = call.request
    if error is ErrorCode.PRODUCER_FENCED and call.version < FENCED_IS_KNOWN_SINCE[type(request)]:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    if isinstance(request, InitProducerIdRequest):
        return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    if isinstance(request, EndTxnRequest):
        return EndTxnResponse(error_code=error)
    invariant(isinstance(request, AddPartitionsToTxnTransaction), f"{type(request).__name__} has no refusal")
    return partition_results(request, lambda topic, partition: error)


def partition_results(request: AddPartitionsToTxnTransaction, code_of: Any) -> AddPartitionsToTxnResult:
    """A result for each partition of the request; `code_of` gets topic and partition."""
    return AddPartitionsToTxnResult(
        transactional_id=request.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=code_of(topic.name, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refusal(call: Call, error: ErrorCode) -> Answer:
    """The same as an effect."""
    return Answer(call, refuse(call, error))
