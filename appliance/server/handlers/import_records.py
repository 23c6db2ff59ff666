"""ImportRecords, ours: a partition takes over the log of another cluster, batch by batch.

- Offsets, times, producers, transactions and compression stay; the leader epoch becomes the leader's.
- Every crc is checked and offsets must rise, or nothing of a request is appended (CORRUPT_MESSAGE, INVALID_RECORD).
- Appended only where the log ends at `expected_end`, else OFFSET_OUT_OF_RANGE and the true end: whoever else writes is
  noticed, and an import that was interrupted goes on.
- Answered when the records are committed; the last request of an import when they are on the disk.
"""

from __future__ import annotations

import logging
from typing import cast

from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.log.errors import LogWriteFailed
from appliance.log.producer_snapshot import CorruptSnapshot, snapshot_from_bytes
from appliance.records.batch import BatchHeader, check_batch, split_batches
from appliance.server.context import Broker, Partition
from appliance.server.requests import Pending, Request
from appliance.wire.messages.internal_import import ImportRecordsRequest, ImportRecordsResponse

_log = logging.getLogger(__name__)

BATCHES_MAX = 2_000
"""In one request."""


def handle(broker: Broker, request: Request) -> ImportRecordsResponse | Pending:
    body = cast(ImportRecordsRequest, request.body)
    try:
        hosted = _leading(broker, body.topic, body.partition)
        _begin(hosted, body.start_offset)
        end = hosted.log.staged_end_offset
        if end != body.expected_end:
            return _where(hosted, ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {end}, not {body.expected_end}")
        batches = _checked(body.records, body.expected_end)
        producers = snapshot_from_bytes(body.producers) if body.producers else []
        if batches:
            return _append(hosted, request, batches)
        hosted.log.producer_state.adopt(producers)
    except KafkaError as error:
        return failed(request, error.code, error.message)
    except CorruptSnapshot as error:
        return failed(request, ErrorCode.INVALID_RECORD, str(error))
    return _make_durable(broker, hosted, request) if body.finish else _where(hosted)


def failed(request: Request, code: ErrorCode, message: str | None) -> ImportRecordsResponse:
    return ImportRecordsResponse(error_code=code, error_message=message)


def _where(hosted: Partition, code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> ImportRecordsResponse:
    return ImportRecordsResponse(
        error_code=code,
        error_message=message,
        log_start_offset=hosted.log_start_offset,
        log_end_offset=hosted.log_end_offset,
    )


def _leading(broker: Broker, topic: str, partition: int) -> Partition:
    hosted = broker.partitions.get(topic, partition)
    if hosted is None:
        state = broker.image.partition(topic, partition)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if state is None else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refusal = hosted.refusal()
    if refusal:
        raise KafkaError(refusal)
    return cast(Partition, hosted)


def _begin(hosted: Partition, start_offset: int) -> None:
    """Let a log in which nothing was ever written begin where the other one does."""
    log = hosted.log
    if start_offset > 0 and log.staged_end_offset == 0:
        try:
            hosted.begin_anew_at(start_offset)
        except OSError as error:
            message = f"the log cannot begin at {start_offset}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error


def _checked(records: bytes | memoryview | None, expected_end: int) -> list[tuple[memoryview, BatchHeader]]:
    """The batches of a request, in a buffer of their own, each looked at. Raises: KafkaError."""
    if not records:
        return []
    copy = memoryview(bytearray(records))
    batches: list[tuple[memoryview, BatchHeader]] = []
    end, size = expected_end, 0
    for batch in split_batches(copy):
        header = check_batch(batch)
        if header.base_offset < end or header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch at offset {header.base_offset} behind offset {end}")
        end = header.next_offset
        size += len(batch)
        batches.append((batch, header))
        if len(batches) > BATCHES_MAX:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"more than {BATCHES_MAX} batches in one request")
    if size != len(copy):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(copy) - size} bytes are no whole batch")
    return batches


def _append(hosted: Partition, request: Request, batches: list[tuple[memoryview, BatchHeader]]) -> Pending:
    pending = request.pending()

    def committed(code: ErrorCode, offset: int) -> None:
        if not pending.connection.closed:
            pending.answer(_where(hosted, code))

    hosted.append_imported(batches, committed)
    return pending


def _make_durable(broker: Broker, hosted: Partition, request: Request) -> Pending:
    """Close the segment, so that the producers' snapshot is stored with it, and flush all."""
    pending = request.pending()
    log = hosted.log

    def go_on() -> None:
        try:
            flush = log.prepare_flush()
        except LogWriteFailed as error:
            pending.answer(_where(hosted, ErrorCode.KAFKA_STORAGE_ERROR, error.message))
            return
        if flush is None:
            pending.answer(_where(hosted))
            return

        def done(result: Exception | None) -> None:
            if result is not None:
                error = result if isinstance(result, OSError) else OSError(str(result))
                hosted.flush_failed(log.flush_failed(flush, error))
                pending.answer(_where(hosted, ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            log.flushed(flush)
            # Many segments take several rounds.
            go_on()

        broker.background.run(flush.run, done)

    try:
        log.roll(broker.clock.now_ms())
    except (LogWriteFailed, InvariantBroken) as error:
        _log.warning("%s-%d: the imported log is not rolled: %s", hosted.topic, hosted.partition, error)
    go_on()
    return pending
