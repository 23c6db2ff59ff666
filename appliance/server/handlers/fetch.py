"""Fetch, versions 4 to 18.

- Answers at once on any error, else when `min_bytes` are there or `max_wait_ms` is over.
- The first batch is sent whole, even above the limits, so that a reader never starves. The batch that holds the fetch
  offset is sent whole too; the client drops what lies before.
- read_committed stops at the last stable offset and lists aborted transactions.
- Below the local log start the object store is read, in a helper thread; the answer leaves when that is there.
- Records are file slices from here to the socket, but for small pieces.
v7 sessions (KIP-227) · v9 leader epochs (KIP-320) · v12 truncation by epoch (KIP-595) · v13 topic ids (KIP-516) ·
v16 current leader (KIP-951)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import cast

from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.fetch_plan import ByteBudget, Source, leader_epoch_error, source_of
from appliance.partition.fetch_sessions import (
    FetchContext,
    FetchSessions,
    PartitionKey,
    SessionPartition,
)
from appliance.partition.isolation import READ_COMMITTED, visible_end
from appliance.server.context import Broker, Partition, RemoteReader
from appliance.server.leaders import leader_hint
from appliance.server.page_cache import is_cached, read_if_cached, warm
from appliance.server.requests import FileRange, OutputItem, Pending, Request
from appliance.tiering.fetcher import RemoteRead
from appliance.wire.codec import encode_parts
from appliance.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_log = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
LEADER_HINT_SINCE = 12
ENDPOINTS_SINCE = 16
COPIED_UP_TO_BYTES = 16_384
"""Small pieces are read and joined: one send for many of them is cheaper than one sendfile for each."""
REMOTE_READS_MAX = 4
"""Partitions of one request that are read from the object store; others of them wait for the next request."""
FETCH_MAX_BYTES = 55 * 1024 * 1024
"""`fetch.max.bytes` of the broker: no answer is larger, apart from a first batch that is."""


class FetchHandler:
    """Knows the sessions of its broker."""

    def __init__(self, sessions: FetchSessions) -> None:
        self.sessions = sessions

    def handle(self, broker: Broker, request: Request) -> Pending:
        body = cast(FetchRequest, request.body)
        by_id = request.api_version >= TOPIC_IDS_SINCE
        wanted = [
            SessionPartition(
                (topic.topic_id if by_id else topic.topic, partition.partition),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
            for topic in body.topics
            for partition in topic.partitions
        ]
        forgotten = [
            (topic.topic_id if by_id else topic.topic, partition)
            for topic in body.forgotten_topics_data
            for partition in topic.partitions
        ]
        context = self.sessions.context(
            body.session_id, body.session_epoch, by_id, wanted, forgotten, broker.clock.monotonic_ms()
        )
        operation = FetchOperation(broker, request, body, context)
        operation.start()
        return operation.pending


class _Read:
    """What one partition brings to an answer."""

    __slots__ = ("data", "hosted", "is_remote", "partition", "range", "size", "visible_end", "wanted_bytes")

    def __init__(self, partition: SessionPartition) -> None:
        self.partition = partition
        self.data = PartitionData(partition_index=partition.key[1], records=b"")
        self.hosted: Partition | None = None
        self.range: FileRange | None = None
        self.size = 0
        self.is_remote = False
        self.wanted_bytes = 0
        self.visible_end = 0

    def fail(self, error: ErrorCode) -> None:
        self.data.error_code = error
        self.data.high_watermark = -1
        self.data.log_start_offset = -1

    def take_remote(self, result: RemoteRead | Exception, isolation_level: int) -> None:
        """What the object store had."""
        if isinstance(result, KafkaError):
            self.fail(result.code)
        elif isinstance(result, Exception):
            partition = self.partition
            _log.error("reading %s at %d from the object store: %s", partition.key, partition.fetch_offset, result)
            self.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            self.data.records = result.records
            self.size = len(result.records)
            if isolation_level == READ_COMMITTED:
                self.data.aborted_transactions = [
                    AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                    for one in result.aborted
                ]

    @property
    def answers_now(self) -> bool:
        """Whether the reader must hear of this without waiting."""
        return self.data.error_code != 0 or self.is_remote or self.data.diverging_epoch.epoch >= 0


class FetchOperation:
    """One fetch: read, and if there is not enough, wait."""

    def __init__(self, broker: Broker, request: Request, body: FetchRequest, context: FetchContext) -> None:
        self.broker = broker
        self.request = request
        self.context = context
        self.pending = request.pending()
        self._isolation_level = body.isolation_level
        self._replica_id = (
            body.replica_state.replica_id if request.api_version >= REPLICA_STATE_SINCE else body.replica_id
        )
        self._max_bytes = min(body.max_bytes, FETCH_MAX_BYTES)
        self._min_bytes = body.min_bytes
        self._max_wait_ms = body.max_wait_ms
        self._names = request.api_version < TOPIC_IDS_SINCE
        self._kept = False
        self._cancel_timer: Callable[[], None] = _nothing
        self._waits_for: list[Partition] = []

    def start(self) -> None:
        if self.context.error:
            self._send(FetchResponse(error_code=self.context.error))
            return
        reads = self._read_all()
        if self._is_enough(reads) or self._max_wait_ms <= 0 or not self.context.partitions:
            self._finish(reads)
            return
        self._wait(reads)

    # Waiting

    def _wait(self, reads: list[_Read]) -> None:
        self._waits_for = [read.hosted for read in reads if read.hosted is not None]
        for hosted in self._waits_for:
            hosted.waiters[self] = None
        timer = self.broker.background.schedule(self._max_wait_ms, self._timed_out)
        self._cancel_timer = timer.cancel

        def give_up() -> None:
            timer.cancel()
            self._stop_waiting()

        self.pending.on_close(give_up)

    def woken(self, partition: object) -> None:
        """One of the partitions has more, or has changed."""
        reads = self._read_all()
        if self._is_enough(reads):
            self._cancel_timer()
            self._stop_waiting()
            self._finish(reads)

    def _timed_out(self) -> None:
        self._stop_waiting()
        self._finish(self._read_all())

    def _stop_waiting(self) -> None:
        for hosted in self._waits_for:
            hosted.waiters.pop(self, None)
        self._waits_for = []

    def _is_enough(self, reads: list[_Read]) -> bool:
        return sum(read.size for read in reads) >= self._min_bytes or any(read.answers_now for read in reads)

    # Reading

    def _read_all(self) -> list[_Read]:
        budget = ByteBudget(self._max_bytes)
        return [self._read(partition, budget) for partition in self.context.partitions]

    def _read(self, partition: SessionPartition, budget: ByteBudget) -> _Read:
        read = _Read(partition)
        try:
            self._read_into(read, budget)
        except KafkaError as error:
            read.fail(error.code)
        except OSError as error:
            _log.error("fetch of %s: %s", partition.key, error)
            read.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            _log.exception("fetch of %s at %d failed", partition.key, partition.fetch_offset)
            read.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        return read

    def _read_into(self, read: _Read, budget: ByteBudget) -> None:
        partition = read.partition
        hosted = self._find(partition.key)
        read.hosted = hosted
        if self._replica_id >= 0:
            # Every partition has one replica so far, so nobody follows.
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = hosted.refusal() or leader_epoch_error(partition.current_leader_epoch, hosted.leader_epoch)
        if error:
            raise KafkaError(error)
        log = hosted.log
        high_watermark, last_stable_offset = hosted.high_watermark, hosted.last_stable_offset
        end = visible_end(
            self._replica_id,
            self._isolation_level,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_end_offset=hosted.log_end_offset,
        )
        data = read.data
        data.high_watermark = high_watermark
        data.last_stable_offset = last_stable_offset
        data.log_start_offset = hosted.log_start_offset
        if partition.last_fetched_epoch >= 0 and self._diverges(hosted, partition, data):
            return
        read.visible_end = end
        source = source_of(
            partition.fetch_offset,
            log_start_offset=hosted.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            visible_end=end,
            log_end_offset=hosted.log_end_offset,
        )
        if source is Source.OUT_OF_RANGE:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if source is Source.NOTHING:
            return
        share = budget.share(partition.max_bytes)
        if not share and not budget.nothing_yet:
            return
        if source is Source.REMOTE:
            read.is_remote = True
            read.wanted_bytes = share
            budget.taken(share)
            return
        found = log.read(partition.fetch_offset, share, end, min_one_batch=budget.nothing_yet)
        if found is None or not found.length:
            return
        descriptor = found.file_descriptor
        small = read_if_cached(descriptor, found.position, found.length) if found.length <= COPIED_UP_TO_BYTES else None
        if small is not None:
            data.records = small
        else:
            read.range = FileRange(descriptor, found.position, found.length, found)
        read.size = found.length
        budget.taken(found.length)
        if self._isolation_level == READ_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(partition.fetch_offset, end)
            ]

    @staticmethod
    def _diverges(hosted: Partition, partition: SessionPartition, data: PartitionData) -> bool:
        """Whether the reader's log has left ours; then it is told where its last epoch ended here."""
        epoch, end_offset = hosted.log.leader_epochs.end_offset_for(partition.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < partition.last_fetched_epoch or end_offset < partition.fetch_offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return True
        return False

    def _find(self, key: PartitionKey) -> Partition:
        topic, index = key
        if isinstance(topic, uuid.UUID):
            hosted = self.broker.partitions.get_by_id(topic, index)
            state = self.broker.image.topics_by_id.get(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            hosted = self.broker.partitions.get(topic, index)
            state = self.broker.image.topics.get(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if hosted is not None:
            return cast(Partition, hosted)
        if state is None:
            raise KafkaError(unknown)
        if not 0 <= index < len(state.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Answering

    def _finish(self, reads: list[_Read]) -> None:
        cold = [
            read.range
            for read in reads
            if read.range is not None
            and not is_cached(read.range.file_descriptor, read.range.position, len(read.range))
        ]
        if cold:
            self._warm(reads, cold)
        else:
            self._finish_cached(reads)

    def _warm(self, reads: list[_Read], cold: list[FileRange]) -> None:
        """Let a helper thread read from the disk what sendfile would have to wait for."""
        self._keep(reads)
        pieces = [(each.file_descriptor, each.position, each.length) for each in cold]

        def work() -> None:
            for piece in pieces:
                warm(*piece)

        # Whatever came of it: the answer can be sent, at worst slowly.
        self.broker.background.run(work, lambda _: self._finish_cached(reads))

    def _finish_cached(self, reads: list[_Read]) -> None:
        remote = [read for read in reads if read.is_remote]
        if remote:
            self._read_remote(reads, remote[:REMOTE_READS_MAX])
        else:
            self._answer(reads)

    def _read_remote(self, reads: list[_Read], chosen: list[_Read]) -> None:
        """Ask the object store in a helper thread. What is not there in time comes out of the cache next time."""
        reader, isolation_level = self.broker.remote, self._isolation_level

        def work() -> list[RemoteRead | Exception]:
            return [_fetch_remote(reader, read) for read in chosen]

        def done(found: list[RemoteRead | Exception] | Exception) -> None:
            if self.pending.answered:
                return
            timer.cancel()
            results = [found] * len(chosen) if isinstance(found, Exception) else found
            for read, result in zip(chosen, results, strict=True):
                read.take_remote(result, isolation_level)
            self._answer(reads)

        # What lies in files now may be deleted when the object store has answered.
        self._keep(reads)
        limit_ms = max(self._max_wait_ms, self.broker.config.get("remote.fetch.max.wait.ms"))
        timer = self.broker.background.schedule(limit_ms, lambda: self._answer(reads))
        self.broker.remote_threads.run(work, done)

    def _keep(self, reads: list[_Read]) -> None:
        for read in reads:
            if read.range is not None and not self._kept:
                read.range.retain()
        self._kept = True

    def _answer(self, reads: list[_Read]) -> None:
        self._keep(reads)
        response = FetchResponse(session_id=self.context.session_id)
        served: list[PartitionKey] = []
        topic: object = None
        for read in reads:
            data = read.data
            if self.context.session is not None:
                news = read.partition.news(data.high_watermark, data.last_stable_offset, data.log_start_offset)
                if read.size:
                    served.append(read.partition.key)
                if self.context.is_incremental and not (news or read.size or read.answers_now):
                    continue
            if read.range is not None:
                data.records = read.range  # type: ignore[assignment]
            if data.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
                self._hint(read, response)
            if read.partition.key[0] != topic or not response.responses:
                topic = read.partition.key[0]
                response.responses.append(
                    FetchableTopicResponse(topic=topic) if self._names else FetchableTopicResponse(topic_id=topic)  # type: ignore[arg-type]
                )
            response.responses[-1].partitions.append(data)
        if self.context.session is not None:
            self.context.session.served(served)
        self._send(response)

    def _hint(self, read: _Read, response: FetchResponse) -> None:
        """Tell the reader where the leader is now (KIP-951)."""
        version = self.request.api_version
        topic, index = read.partition.key
        if version < LEADER_HINT_SINCE:
            return
        if isinstance(topic, uuid.UUID):
            state = self.broker.image.topics_by_id.get(topic)
            topic = state.name if state is not None else ""
        hint = leader_hint(self.broker, topic, index)
        if hint is None:
            return
        read.data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        if version >= ENDPOINTS_SINCE and all(one.node_id != hint.leader_id for one in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=hint.leader_id, host=hint.host, port=hint.port, rack=hint.rack)
            )

    def _send(self, response: FetchResponse) -> None:
        self.pending.answer_items(encode_with_ranges(response, self.request.api_version, self.request.correlation_id))


def _fetch_remote(reader: RemoteReader, read: _Read) -> RemoteRead | Exception:
    """Runs in a helper thread."""
    hosted = cast(Partition, read.hosted)
    offset, max_bytes = read.partition.fetch_offset, max(1, read.wanted_bytes)
    try:
        return reader.fetch(hosted.topic_id, hosted.partition, offset, max_bytes, read.visible_end)
    except Exception as error:
        return error


def _nothing() -> None:
    """Instead of cancelling a timer that was never started."""


def encode_with_ranges(response: FetchResponse, version: int, correlation_id: int) -> list[OutputItem]:
    """A whole frame in pieces: bytes, and ranges of files where records lie in them."""
    parts = encode_parts(response, version)
    header = b"\0" if version >= LEADER_HINT_SINCE else b""
    size = 4 + len(header) + sum(map(len, parts))
    items: list[OutputItem] = []
    joined: list[bytes] = [size.to_bytes(4, "big"), correlation_id.to_bytes(4, "big", signed=True), header]
    for part in parts:
        if type(part) is FileRange:
            items.append(b"".join(joined))
            items.append(part)
            joined = []
        else:
            joined.append(part)
    if joined:
        items.append(b"".join(joined))
    return items
