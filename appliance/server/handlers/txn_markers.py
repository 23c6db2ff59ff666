"""WriteTxnMarkers, versions 1 and 2: transactions end in the partitions that this broker leads.

- From a transaction's coordinator, or from an administrator who ends one that hangs (KIP-664).
- A marker of an older coordinator, or of an older epoch of its producer, is refused.
- In `__consumer_offsets` it goes through the group coordinator, which then commits or drops the offsets.
v2 the version of transactions that the producer follows: with 2 a marker's epoch is new (KIP-1228)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.partition.transaction_checks import check_marker
from appliance.records.control import ABORT, COMMIT, build_marker
from appliance.server.context import Broker
from appliance.server.handlers.find_coordinator import OFFSETS_TOPIC
from appliance.server.handlers.group_calls import answer_or_wait, coordinators_of
from appliance.server.handlers.transaction_calls import transactions_of
from appliance.server.requests import Pending, Request
from appliance.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from appliance.wire.schema import Struct

_NOT_HERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def handle(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(WriteTxnMarkersRequest, request.body)
    return answer_or_wait(request, lambda answer: _write_all(broker, body, answer))


def _write_all(broker: Broker, body: WriteTxnMarkersRequest, answer: Callable[[Struct], None]) -> None:
    response = WriteTxnMarkersResponse()
    # One more than there are, so that the answer leaves when all were asked for.
    open_count = 1

    def one_done(result: WritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
        nonlocal open_count
        result.error_code = error
        open_count -= 1
        if not open_count:
            answer(response)

    for marker in body.markers:
        of_marker = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(of_marker)
        for topic in marker.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            of_marker.topics.append(of_topic)
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(partition_index=index)
                of_topic.partitions.append(result)
                open_count += 1
                write_marker(broker, marker, topic.name, index, partial(one_done, result))
    open_count -= 1
    if not open_count:
        answer(response)


def write_marker(
    broker: Broker, marker: WritableTxnMarker, topic: str, index: int, done: Callable[[ErrorCode], None]
) -> None:
    """Write a transaction's marker into a partition that this broker leads; `done` gets the outcome once."""
    hosted = broker.partitions.get(topic, index)
    if hosted is None:
        known = broker.image.partition(topic, index) is not None
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    verdict = hosted.refusal() or check_marker(
        hosted.log.producer_state,
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    if verdict is not None:
        done(verdict)
        return
    transactions_of(broker).guards.marker_comes(
        topic, index, marker.producer_id, marker.producer_epoch, marker.transaction_version
    )
    if topic == OFFSETS_TOPIC:

        def decided(answer: Struct) -> None:
            code = ErrorCode(cast(WritableTxnMarkerPartitionResult, answer).error_code)
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_HERE else code)

        coordinators_of(broker).submit_to(index, Call(marker), decided)
        return
    batch = build_marker(
        COMMIT if marker.transaction_result else ABORT,
        marker.coordinator_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        now_ms=broker.clock.now_ms(),
    )
    hosted.append_records(batch, lambda code, _: done(code))


def failed(request: Request, code: ErrorCode, message: str | None) -> WriteTxnMarkersResponse:
    """The answer when everything failed alike."""
    body = cast(WriteTxnMarkersRequest, request.body)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )
