"""DeleteRecords, versions 0 to 2: raise the log start (KIP-107).

- -1 means up to the high watermark; nothing above it goes. A topic that is only compacted is refused: POLICY_VIOLATION,
  an internal one: INVALID_TOPIC_EXCEPTION.
- Where the object store holds records, its manifest is changed first (T2, T3), then the log start is raised.
- The answer waits until every live replica has raised its start, and until ours is durable: what was deleted does not
  come back after a crash. REQUEST_TIMED_OUT after `timeout_ms`; the deletion goes on all the same.
- Records below the start are gone for readers at once. Segments go with the next look of retention, their files after
  `file.delete.delay.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.server.context import Broker, Partition
from appliance.server.metadata_view import INTERNAL_TOPICS
from appliance.server.requests import Pending, Request
from appliance.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_log = logging.getLogger(__name__)

HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


def handle(broker: Broker, request: Request) -> Pending:
    body = cast(DeleteRecordsRequest, request.body)
    # A partition that is named twice counts once, with its last offset.
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in body.topics
        for partition in topic.partitions
    }
    deletion = _Deletion(broker, request.pending())
    topics: dict[str, DeleteRecordsTopicResult] = {}
    for (topic, partition), offset in wanted.items():
        if topic not in topics:
            topics[topic] = DeleteRecordsTopicResult(name=topic)
        answer = DeleteRecordsPartitionResult(partition_index=partition, low_watermark=NO_LOW_WATERMARK)
        topics[topic].partitions.append(answer)
        deletion.add(topic, answer, offset)
    deletion.start(DeleteRecordsResponse(topics=list(topics.values())), body.timeout_ms)
    return deletion.pending


def failed(request: Request, code: ErrorCode, message: str | None) -> DeleteRecordsResponse:
    body = cast(DeleteRecordsRequest, request.body)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=one.partition_index, low_watermark=NO_LOW_WATERMARK, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


class _Place:
    """One partition of a request, from the moment at which its start was asked to rise."""

    __slots__ = ("answer", "hosted", "leader_epoch", "target")

    def __init__(self, answer: DeleteRecordsPartitionResult, hosted: Partition, target: int) -> None:
        self.answer = answer
        self.hosted = hosted
        self.leader_epoch = hosted.leader_epoch
        self.target = target

    def is_settled(self) -> bool:
        """Whether all replicas have done it, or it has come to nothing."""
        hosted = self.hosted
        refusal = hosted.refusal()
        if not refusal and hosted.leader_epoch != self.leader_epoch:
            refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if refusal:
            self.fail(refusal)
            return True
        if hosted.low_watermark < self.target:
            return False
        self.answer.low_watermark = hosted.low_watermark
        return True

    def fail(self, code: ErrorCode) -> None:
        self.answer.error_code = code
        self.answer.low_watermark = NO_LOW_WATERMARK


class _Deletion:
    """One request: waits for replicas and for the manifest, then for the disk."""

    def __init__(self, broker: Broker, pending: Pending) -> None:
        self.pending = pending
        self._broker = broker
        self._response = DeleteRecordsResponse()
        self._places: list[_Place] = []
        self._open: list[_Place] = []
        self._cancel_timer: Callable[[], None] = lambda: None

    def add(self, topic: str, answer: DeleteRecordsPartitionResult, offset: int) -> None:
        """Ask for one partition's start to rise."""
        try:
            hosted = _leading(self._broker, topic, answer.partition_index)
            target = _target(hosted, offset)
            if target > hosted.log_start_offset and not self._broker.tiering.raise_start(
                hosted.topic_id, hosted.partition, target
            ):
                hosted.raise_log_start(target)
        except KafkaError as error:
            answer.error_code = error.code
            return
        self._places.append(_Place(answer, hosted, target))

    def start(self, response: DeleteRecordsResponse, timeout_ms: int) -> None:
        self._response = response
        self._open = [place for place in self._places if not place.is_settled()]
        if not self._open:
            self._store()
            return
        for place in self._open:
            place.hosted.waiters[self] = None
        timer = self._broker.background.schedule(max(0, timeout_ms), self._timed_out)
        self._cancel_timer = timer.cancel

        def give_up() -> None:
            timer.cancel()
            self._stop_waiting()

        self.pending.on_close(give_up)

    def woken(self, partition: object) -> None:
        """One of the partitions has moved on, or is no longer ours."""
        for place in [place for place in self._open if place.hosted is partition]:
            if place.is_settled():
                self._open.remove(place)
                place.hosted.waiters.pop(self, None)
        if not self._open:
            self._cancel_timer()
            self._store()

    def _timed_out(self) -> None:
        for place in self._open:
            place.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._stop_waiting()
        self._store()

    def _stop_waiting(self) -> None:
        for place in self._open:
            place.hosted.waiters.pop(self, None)
        self._open = []

    def _store(self) -> None:
        """Make the new starts durable, then answer."""
        done = [place for place in self._places if not place.answer.error_code]
        if not done:
            self.pending.answer(self._response)
            return

        def stored(result: Exception | None) -> None:
            if result is not None:
                _log.error("the log starts could not be stored: %s", result)
                for place in done:
                    place.fail(ErrorCode.KAFKA_STORAGE_ERROR)
            self.pending.answer(self._response)

        self._broker.background.run(self._broker.partitions.checkpoint_log_starts(), stored)


def _leading(broker: Broker, topic: str, partition: int) -> Partition:
    hosted = broker.partitions.get(topic, partition)
    if hosted is None:
        state = broker.image.partition(topic, partition)
        absence = broker.partitions.absence_of(topic, partition)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if state is None else absence)
    refusal = hosted.refusal()
    if refusal:
        raise KafkaError(refusal)
    return cast(Partition, hosted)


def _target(hosted: Partition, offset: int) -> int:
    if hosted.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "records of an internal topic are its coordinators'")
    if hosted.config.is_compacted and not hosted.config.is_deleted_by_retention:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "records of a compacted topic are not deleted by offset")
    target = hosted.high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= target <= hosted.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return target
