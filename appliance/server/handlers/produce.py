"""Produce, versions 3 to 13 (0 to 2 come here by way of `produce_old`).

- Each partition gets its own error; its neighbours are appended all the same.
- acks=1 is answered when the batch is written (and flushed, where `flush.messages` is 1), acks=-1 when the high
  watermark has passed it in the same leader epoch (NOT_ENOUGH_REPLICAS before, REQUEST_TIMED_OUT after `timeout_ms`),
  acks=0 never: an error then ends the connection, so that the client looks for the leader.
- One batch of version 2 for each partition; a duplicate of one of the last five of its producer gets the old offset.
- A batch is a view into the receive buffer until this tick's write. Where `compression.type` asks for another codec, or
  a rule about single records for a look into a large batch, a helper thread does that first.
- The first batch of a transaction in a partition waits for the transaction's coordinator (`produce_transactions`).
v5 log start · v8 record errors (KIP-467) · v10 current leader (KIP-951) · v13 topic ids
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.produce_checks import (
    LOG_APPEND_TIME,
    OPENED_AT_ONCE_MAX_BYTES,
    RecordsRefused,
    check_produced,
    check_records,
    must_be_opened,
)
from appliance.partition.recompression import repacked, wanted_codec
from appliance.partition.transaction_checks import check_transactional
from appliance.records.batch import BatchHeader, parse_header
from appliance.server.access import check_topic
from appliance.server.connection import Connection, LateAnswer
from appliance.server.context import Broker, Partition
from appliance.server.handlers import produce_transactions
from appliance.server.handlers.produce_results import CommitWaiter, PartitionResult, answer_written
from appliance.server.leaders import leader_hint
from appliance.server.metadata_view import INTERNAL_TOPICS
from appliance.server.requests import Pending, Request
from appliance.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

_TOPIC_IDS_SINCE = 13
_LEADER_HINT_SINCE = 10


def handle(broker: Broker, request: Request) -> Struct | Pending | None:
    """Append what can be appended; the answer is built after the tick's write."""
    body = cast(ProduceRequest, request.body)
    response = ProduceResponse(throttle_time_ms=request.throttle_time_ms)
    results: list[PartitionResult] = []
    now_ms = request.connection.server.now_ms
    for topic in body.topic_data:
        topic_answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(topic_answer)
        for data in topic.partition_data:
            result = PartitionResult(PartitionProduceResponse(index=data.index))
            topic_answer.partition_responses.append(result.answer)
            results.append(result)
            _guarded(request, result, _check, broker, request, body, topic, data, result, now_ms)
            if result.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                _hint(broker, request, topic, result.answer, response)
    if body.transactional_id is not None and (unverified := produce_transactions.unverified(results)):
        return _verify_first(broker, request, response, results, unverified)
    work = [(result, step) for result in results if (step := _helpers_step(result, now_ms)) is not None]
    if work:
        pending = request.pending()
        _prepare_first(broker, request, response, results, work, pending)
        return pending
    _append_all(request, results, now_ms)
    if body.acks == 0:
        _end_after_failure(request, results)
        return None
    request.connection.queue((_after_write, request, response, results))
    return None


def _guarded(request: Request, result: PartitionResult, step: Callable[..., None], *arguments: Any) -> None:
    """One step for one partition; what goes wrong is this partition's error."""
    try:
        step(*arguments)
    except RecordsRefused as error:
        result.fail(error.code, error.message)
        result.answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.records
        ]
    except KafkaError as error:
        result.fail(error.code, error.message)
    except Exception:
        _log.exception("%r: partition %d failed", request, result.answer.index)
        result.fail(ErrorCode.UNKNOWN_SERVER_ERROR)


def _check(
    broker: Broker,
    request: Request,
    body: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    result: PartitionResult,
    now_ms: int,
) -> None:
    hosted = _admitted(broker, request, body, topic, data.index)
    header = result.header = check_produced(data.records, hosted.config, now_ms, request.api_version)
    if header.is_transactional or body.transactional_id is not None:
        check_transactional(hosted.log.producer_state, header, body.transactional_id)
    result.records = cast(memoryview, data.records)
    if must_be_opened(header, hosted.config, now_ms):
        result.is_opened = not header.codec and len(result.records) <= OPENED_AT_ONCE_MAX_BYTES
        if result.is_opened:
            check_records(result.records, hosted.config, now_ms)
    result.hosted = hosted


def _admitted(broker: Broker, request: Request, body: ProduceRequest, topic: TopicProduceData, index: int) -> Partition:
    if request.access is not None:
        named = topic.topic_id if request.api_version >= _TOPIC_IDS_SINCE else topic.name
        check_topic(broker.image, request.access, Operation.WRITE, named)
    hosted = _find(broker, request.api_version, topic, index)
    _check_request(body, hosted)
    return hosted


def refusal_of(broker: Broker, request: Request, topic: TopicProduceData, index: int) -> KafkaError | None:
    """Why nothing may be written there, whatever it is; asked before work goes into it (`produce_old`)."""
    try:
        _admitted(broker, request, cast(ProduceRequest, request.body), topic, index)
    except KafkaError as error:
        return error
    return None


def append_converted(broker: Broker, request: Request, pending: Pending, refused: Mapping[int, KafkaError]) -> None:
    """The rest of a request whose records a helper thread has made anew. `refused`: by a partition's place in it."""
    body = cast(ProduceRequest, request.body)
    response = ProduceResponse(throttle_time_ms=request.throttle_time_ms)
    results: list[PartitionResult] = []
    now_ms = request.connection.server.now_ms
    for topic in body.topic_data:
        topic_answer = TopicProduceResponse(name=topic.name)
        response.responses.append(topic_answer)
        for data in topic.partition_data:
            result = PartitionResult(PartitionProduceResponse(index=data.index))
            topic_answer.partition_responses.append(result.answer)
            error = refused.get(len(results))
            results.append(result)
            if error is not None:
                result.fail(error.code, error.message)
            elif data.records:
                _guarded(request, result, _check, broker, request, body, topic, data, result, now_ms)
            else:
                result.answer.base_offset = -1
    work = [(result, step) for result in results if (step := _helpers_step(result, now_ms)) is not None]
    if work:
        _prepare_first(broker, request, response, results, work, pending)
    else:
        _append_late(request, response, results, pending)


def _append_all(request: Request, results: list[PartitionResult], now_ms: int) -> None:
    for result in results:
        if result.hosted is not None:
            _guarded(request, result, _append, request, result, now_ms)


def _append(request: Request, result: PartitionResult, now_ms: int) -> None:
    hosted, header = cast(Partition, result.hosted), cast(BatchHeader, result.header)
    request.connection.hold()
    if hosted.config.message_timestamp_type == LOG_APPEND_TIME:
        result.answer.log_append_time_ms = now_ms
    result.base_offset = hosted.append(result.records, header, now_ms)
    result.required_offset = result.base_offset + header.last_offset_delta + 1


def _end_after_failure(request: Request, results: list[PartitionResult]) -> None:
    """acks=0 has no answer that could name an error."""
    failed = next((result.answer for result in results if result.answer.error_code), None)
    if failed is not None:
        request.connection.close(f"acks=0 and {ErrorCode(failed.error_code).name} for partition {failed.index}")


def _helpers_step(result: PartitionResult, now_ms: int) -> Callable[[bytes], bytes | bytearray] | None:
    """What a helper thread has to do with the batch before it can be appended: returns the batch to append."""
    if result.hosted is None or result.header is None:
        return None
    config = result.hosted.config
    codec = wanted_codec(config, result.header)
    if codec is not None:
        return lambda batch: repacked(batch, codec, config, now_ms)
    if result.is_opened:
        return None

    def opened(batch: bytes) -> bytes:
        check_records(batch, config, now_ms)
        return batch

    return opened


def _prepare_first(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    results: list[PartitionResult],
    work: list[tuple[PartitionResult, Callable[[bytes], bytes | bytearray]]],
    pending: Pending,
) -> None:
    """Let a helper thread look into batches, or pack them anew; meanwhile the connection's next requests wait."""
    # The receive buffer is used again before the helper is done.
    copies = [(bytes(result.records), step) for result, step in work]
    _keep_records(results)

    def prepare() -> list[bytearray | Exception]:
        return [_prepared(batch, step) for batch, step in copies]

    def prepared(made: list[bytearray | Exception] | Exception) -> None:
        batches = [made] * len(work) if isinstance(made, Exception) else made
        for (result, _), batch in zip(work, batches, strict=True):
            _guarded(request, result, _take_prepared, result, batch)
        _append_late(request, response, results, pending)

    broker.background.run(prepare, prepared)


def _keep_records(results: list[PartitionResult]) -> None:
    """Copy the batches out of the receive buffer."""
    for result in results:
        result.records = memoryview(bytearray(result.records))


def _verify_first(
    broker: Broker,
    request: Request,
    response: ProduceResponse,
    results: list[PartitionResult],
    unverified: list[PartitionResult],
) -> Pending:
    """Ask the transaction's coordinator about its first batches; meanwhile the connection's next requests wait."""
    pending = request.pending()
    _keep_records(results)

    def verified() -> None:
        now_ms = request.connection.server.now_ms
        work = [(result, step) for result in results if (step := _helpers_step(result, now_ms)) is not None]
        if work:
            _prepare_first(broker, request, response, results, work, pending)
        else:
            _append_late(request, response, results, pending)

    transactional_id = cast(ProduceRequest, request.body).transactional_id or ""
    produce_transactions.verify(broker, transactional_id, request.api_version, unverified, verified)
    return pending


def _append_late(request: Request, response: ProduceResponse, results: list[PartitionResult], pending: Pending) -> None:
    """Append what had to wait, and answer after the tick's write."""
    body = cast(ProduceRequest, request.body)
    server = request.connection.server
    for result in results:
        if result.hosted is not None and (refusal := result.hosted.refusal()):
            result.fail(refusal)

    def answer() -> None:
        if body.acks == 0:
            pending.answer_items([])
            _end_after_failure(request, results)
            return
        waiting = [result for result in results if result.written() and result.must_wait(body.acks)]
        if waiting:
            CommitWaiter(pending, response, waiting, body.timeout_ms)
        else:
            pending.answer(response)

    server.begin_tick()
    _append_all(request, results, server.now_ms)
    server.after_write.append(answer)


def _prepared(batch: bytes, step: Callable[[bytes], bytes | bytearray]) -> bytearray | Exception:
    """Runs in a helper thread."""
    try:
        return bytearray(step(batch))
    except Exception as error:
        return error


def _take_prepared(result: PartitionResult, batch: bytearray | Exception) -> None:
    if isinstance(batch, Exception):
        raise batch
    result.records = memoryview(batch)
    result.header = parse_header(batch)


def _find(broker: Broker, version: int, topic: TopicProduceData, index: int) -> Partition:
    if version >= _TOPIC_IDS_SINCE:
        hosted = broker.partitions.get_by_id(topic.topic_id, index)
        state = broker.image.topics_by_id.get(topic.topic_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        hosted = broker.partitions.get(topic.name, index)
        state = broker.image.topics.get(topic.name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if hosted is None:
        if state is None:
            raise KafkaError(unknown)
        if index >= len(state.partitions) or index < 0:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(broker.partitions.absence_of(state.topic_id, index))
    refusal = hosted.refusal()
    if refusal:
        raise KafkaError(refusal)
    return cast(Partition, hosted)


def _check_request(body: ProduceRequest, hosted: Partition) -> None:
    if not -1 <= body.acks <= 1:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is -1, 0 or 1, not {body.acks}")
    if body.acks == -1 and hosted.leader is not None and not hosted.leader.enough_in_sync:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(hosted.leader.isr)} in sync; min.insync.replicas is {hosted.leader.min_insync_replicas}",
        )
    if hosted.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"clients do not write to {hosted.topic}")


def _after_write(connection: Connection, late: LateAnswer) -> bytes | Pending:
    """The tick has written: answer, or wait for the followers if acks=-1 asks for it."""
    request: Request
    results: list[PartitionResult]
    _, request, response, results = late
    body = cast(ProduceRequest, request.body)
    parts = (request.api_version, request.correlation_id, body.acks, body.timeout_ms)
    return answer_written(connection, parts, response, results)


def _hint(
    broker: Broker,
    request: Request,
    topic: TopicProduceData,
    answer: PartitionProduceResponse,
    response: ProduceResponse,
) -> None:
    """Tell the client where the leader is now, so that it needs no Metadata round trip (KIP-951)."""
    if request.api_version < _LEADER_HINT_SINCE:
        return
    name = topic.name
    if request.api_version >= _TOPIC_IDS_SINCE:
        state = broker.image.topics_by_id.get(topic.topic_id)
        name = state.name if state is not None else ""
    hint = leader_hint(broker, request.connection.listener.name, name, answer.index)
    if hint is None:
        return
    answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
    if all(endpoint.node_id != hint.leader_id for endpoint in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
        )


def failed(request: Request, code: ErrorCode, message: str | None) -> Struct | None:
    """Every partition of the request with the same error; none for acks=0, which then ends the connection."""
    body = cast(ProduceRequest, request.body)
    if body.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=message)
                    for data in topic.partition_data
                ],
            )
            for topic in body.topic_data
        ]
    )
