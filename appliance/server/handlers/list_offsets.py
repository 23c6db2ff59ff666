"""ListOffsets, versions 1 to 11: the offset of a time, or of one of the places that have names.

-1 latest: the high watermark, for read_committed the last stable offset · -2 earliest, also where only the object store
still has it · -3 the record with the largest timestamp (KIP-734) · -4 earliest on this broker's disk (KIP-405) ·
-5 latest in the object store (KIP-1005) · -6 the first that is not in the object store yet (KIP-1023) · otherwise the
first record whose timestamp is at or after the given one.

The latest offset of a new leader whose high watermark has not reached its first offset is OFFSET_NOT_AVAILABLE, before
version 5 LEADER_NOT_AVAILABLE (KIP-207).

Times are looked up in helper threads: in the object store first where it holds older records, then on the disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.fetch_plan import leader_epoch_error
from appliance.partition.isolation import visible_end
from appliance.server.context import Broker, Partition
from appliance.server.requests import Pending, Request
from appliance.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_log = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
ONE_OFFSET_SINCE = 1
LEADER_EPOCH_SINCE = 4
OFFSET_NOT_AVAILABLE_SINCE = 5
_SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


class _Lookup:
    """One partition whose answer needs a look into the log."""

    __slots__ = ("answer", "end", "hosted", "timestamp")

    def __init__(self, answer: ListOffsetsPartitionResponse, hosted: Partition, timestamp: int, end: int) -> None:
        self.answer = answer
        self.hosted = hosted
        self.timestamp = timestamp
        self.end = end


def handle(broker: Broker, request: Request) -> ListOffsetsResponse | Pending:
    body = cast(ListOffsetsRequest, request.body)
    response = ListOffsetsResponse()
    lookups: list[_Lookup] = []
    for topic in body.topics:
        topic_answer = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(topic_answer)
        counts = Counter(wanted.partition_index for wanted in topic.partitions)
        for wanted in {each.partition_index: each for each in topic.partitions}.values():
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            topic_answer.partitions.append(answer)
            if counts[wanted.partition_index] > 1:
                answer.error_code = ErrorCode.INVALID_REQUEST
                continue
            try:
                lookup = _answer_or_look_up(broker, request, body, topic.name, wanted, answer)
                if lookup is not None:
                    lookups.append(lookup)
            except KafkaError as error:
                answer.error_code = error.code
    if not lookups:
        return _in_version(response, request.api_version)
    pending = request.pending()

    # Retention may drop a segment while the helper reads it; its file stays open until it is released.
    segments = [segment for lookup in lookups for segment in lookup.hosted.log.segments]
    for segment in segments:
        segment.retain()

    def done(result: Exception | None) -> None:
        for segment in segments:
            segment.release()
        if result is not None:
            _log.error("offsets by time could not be looked up: %s", result)
            for lookup in lookups:
                lookup.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        pending.answer(_in_version(response, request.api_version))

    # The object store may take its time; what lies on this disk does not wait for it.
    somewhere_remote = any(
        lookup.hosted.log_start_offset < lookup.hosted.log.local_log_start_offset for lookup in lookups
    )
    threads = broker.remote_threads if somewhere_remote else broker.background
    threads.run(lambda: _look_up_all(broker, lookups), done)
    return pending


def _in_version(response: ListOffsetsResponse, version: int) -> ListOffsetsResponse:
    """The answer without what the version cannot carry; version 0 has a list of offsets (none: nothing was found)."""
    if version < ONE_OFFSET_SINCE:
        for answer in (answer for topic in response.topics for answer in topic.partitions):
            answer.old_style_offsets = [answer.offset] if answer.offset >= 0 else []
            answer.timestamp = answer.offset = answer.leader_epoch = -1
        return response
    if version < LEADER_EPOCH_SINCE:
        for topic in response.topics:
            for answer in topic.partitions:
                answer.leader_epoch = -1
    return response


def _answer_or_look_up(
    broker: Broker,
    request: Request,
    body: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
) -> _Lookup | None:
    hosted = _find(broker, topic, wanted)
    timestamp = wanted.timestamp
    if timestamp < 0 and request.api_version < _SINCE_VERSION.get(timestamp, 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    end = visible_end(
        body.replica_id,
        body.isolation_level,
        high_watermark=hosted.high_watermark,
        last_stable_offset=hosted.last_stable_offset,
        log_end_offset=hosted.log_end_offset,
    )
    log = hosted.log
    if timestamp == LATEST:
        if body.replica_id < 0 and _lags_behind_its_epoch(hosted):
            known = request.api_version >= OFFSET_NOT_AVAILABLE_SINCE
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
        _set(hosted, answer, end)
    elif timestamp == EARLIEST:
        _set(hosted, answer, hosted.log_start_offset)
    elif timestamp == EARLIEST_LOCAL:
        _set(hosted, answer, max(hosted.log_start_offset, log.local_log_start_offset))
    elif timestamp == LATEST_TIERED:
        if hosted.tiered_end > hosted.log_start_offset:
            _set(hosted, answer, hosted.tiered_end - 1)
    elif timestamp == EARLIEST_PENDING_UPLOAD:
        if hosted.config.remote_storage_enable:
            _set(hosted, answer, max(hosted.tiered_end, hosted.log_start_offset))
    elif timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    else:
        return _Lookup(answer, hosted, timestamp, end)
    return None


def _find(broker: Broker, topic: str, wanted: ListOffsetsPartition) -> Partition:
    hosted = broker.partitions.get(topic, wanted.partition_index)
    if hosted is None:
        state = broker.image.partition(topic, wanted.partition_index)
        absence = broker.partitions.absence_of(topic, wanted.partition_index)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if state is None else absence)
    error = hosted.refusal() or leader_epoch_error(wanted.current_leader_epoch, hosted.leader_epoch)
    if error:
        raise KafkaError(error)
    return cast(Partition, hosted)


def _lags_behind_its_epoch(hosted: Partition) -> bool:
    """Whether a new leader does not know yet up to where its predecessors committed: the end would seem to go back."""
    return hosted.leader is not None and hosted.high_watermark < hosted.leader.epoch_start_offset


def _set(hosted: Partition, answer: ListOffsetsPartitionResponse, offset: int) -> None:
    answer.offset = offset
    epoch = hosted.log.leader_epochs.epoch_for(offset)
    answer.leader_epoch = epoch if epoch >= 0 else hosted.leader_epoch


def _look_up_all(broker: Broker, lookups: list[_Lookup]) -> None:
    """Runs in a helper thread."""
    for lookup in lookups:
        try:
            _look_up(broker, lookup)
        except KafkaError as error:
            lookup.answer.error_code = error.code
        except Exception:
            _log.exception(
                "looking up time %d in %s-%d", lookup.timestamp, lookup.hosted.topic, lookup.hosted.partition
            )
            lookup.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR


def _look_up(broker: Broker, lookup: _Lookup) -> None:
    hosted, answer = lookup.hosted, lookup.answer
    log = hosted.log
    if lookup.timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(lookup.end)
        if found is not None:
            answer.offset, answer.timestamp = found
            answer.leader_epoch = log.leader_epochs.epoch_for(answer.offset)
        return
    if hosted.log_start_offset < log.local_log_start_offset:
        remote = broker.remote.offset_for_timestamp(hosted.topic_id, hosted.partition, lookup.timestamp)
        if remote is not None and hosted.log_start_offset <= remote.offset < lookup.end:
            answer.offset, answer.timestamp = remote
            answer.leader_epoch = log.leader_epochs.epoch_for(answer.offset)
            return
    found = log.offset_for_timestamp(lookup.timestamp, lookup.end)
    if found is not None and found.offset >= hosted.log_start_offset:
        answer.offset, answer.timestamp = found
        answer.leader_epoch = log.leader_epochs.epoch_for(answer.offset)


def failed(request: Request, code: ErrorCode, message: str | None) -> ListOffsetsResponse:
    body = cast(ListOffsetsRequest, request.body)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
