"""What becomes of the partitions of a Produce request, and its answer once they are written.

With acks=-1 that is when the high watermark has passed each batch, or one of them cannot be committed, or time is over.
Requests of the short way wait in `produce_commit` instead.
"""

from __future__ import annotations

import uuid
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.records.batch import BatchHeader
from appliance.server.connection import Connection
from appliance.server.context import Partition
from appliance.server.requests import Pending
from appliance.wire.codec import encode_response
from appliance.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


class PartitionResult:
    """What becomes of one partition of a request."""

    __slots__ = ("answer", "base_offset", "header", "hosted", "is_opened", "records", "required_offset")

    def __init__(self, answer: PartitionProduceResponse) -> None:
        self.answer = answer
        self.is_opened = True
        """Whether its single records were looked at, where that is asked for."""
        self.hosted: Partition | None = None
        """Set while the outcome hangs on this partition's log."""
        self.header: BatchHeader | None = None
        self.records = memoryview(b"")
        self.base_offset = -1
        self.required_offset = 0

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.hosted = None
        self.answer.error_code = code
        self.answer.error_message = message
        self.answer.base_offset = -1

    def must_wait(self, acks: int) -> bool:
        """Whether the high watermark has to pass the batch before it is acknowledged, and has not yet."""
        hosted = self.hosted
        if hosted is None or self.required_offset <= hosted.high_watermark:
            return False
        return acks == -1 or hosted.acks_wait_for_flush

    def written(self) -> bool:
        """After this tick's write: whether the batch is in the log; if not, the partition fails."""
        hosted = self.hosted
        if hosted is None:
            return False
        if self.required_offset > hosted.log_end_offset:
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR, "the log could not be written")
            return False
        self.answer.base_offset = self.base_offset
        self.answer.log_start_offset = hosted.log_start_offset
        return True


def answer_written(
    connection: Connection,
    request: tuple[int, int, int, int],
    response: ProduceResponse,
    results: list[PartitionResult],
) -> bytes | Pending:
    """The answer after the tick's write. `request`: version, correlation id, acks and timeout in milliseconds."""
    version, correlation_id, acks, timeout_ms = request
    waiting = [result for result in results if result.written() and result.must_wait(acks)]
    if waiting:
        pending = Pending(connection, version, correlation_id, blocks=False)
        CommitWaiter(pending, response, waiting, timeout_ms)
        return pending
    return encode_response(response, version, correlation_id)


def wait_for_commit(
    connection: Connection,
    request: tuple[int, int, int, int],
    place: tuple[str, uuid.UUID, int],
    hosted: Partition,
    base_offset: int,
    required_offset: int,
) -> bytes | Pending:
    """The rest of the short way (`produce_fast`) where its batch is not committed yet, or could not be written.

    `request`: version, correlation id, acks and timeout in milliseconds. `place`: topic, topic id and partition.
    """
    topic, topic_id, index = place
    result = PartitionResult(PartitionProduceResponse(index=index))
    result.hosted, result.base_offset, result.required_offset = hosted, base_offset, required_offset
    answer = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=[result.answer])
    response = ProduceResponse(responses=[answer])
    return answer_written(connection, request, response, [result])


class CommitWaiter:
    """An acks=-1 request whose batches are written and wait for the high watermark."""

    def __init__(
        self, pending: Pending, response: ProduceResponse, waiting: list[PartitionResult], timeout_ms: int
    ) -> None:
        self._pending = pending
        self._response = response
        self._open = len(waiting)
        self._places = [_Place(self, result) for result in waiting]
        self._timer = pending.connection.server.background.schedule(timeout_ms, self._timed_out)
        pending.on_close(self._timer.cancel)
        for place in self._places:
            place.wait()

    def one_done(self) -> None:
        self._open -= 1
        if not self._open and not self._pending.connection.closed:
            self._timer.cancel()
            self._pending.answer(self._response)

    def _timed_out(self) -> None:
        for place in self._places:
            place.time_out()


class _Place:
    """One partition that a `CommitWaiter` waits for."""

    __slots__ = ("_done", "_result", "_waiter")

    def __init__(self, waiter: CommitWaiter, result: PartitionResult) -> None:
        self._waiter = waiter
        self._result = result
        self._done = False

    def wait(self) -> None:
        hosted = cast(Partition, self._result.hosted)
        if hosted.leader is None:
            self.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            hosted.acks.wait(self._result.required_offset, self)

    def committed(self) -> None:
        self._finish(ErrorCode.NONE)

    def failed(self, error: ErrorCode) -> None:
        self._finish(error)

    def time_out(self) -> None:
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, error: ErrorCode) -> None:
        if self._done:
            return
        self._done = True
        if error:
            self._result.fail(error)
        self._waiter.one_done()
