"""Fetch, versions 4 to 18 (0 to 3 go on to `fetch_old`).

- Answers at once on any error, else when `min_bytes` are there or `max_wait_ms` is over.
- The first batch is sent whole, even above the limits, so that a reader never starves. The batch that holds the fetch
  offset is sent whole too; the client drops what lies before.
- read_committed stops at the last stable offset and lists aborted transactions.
- A fetch that waits looks once a tick, and only at the partitions that changed.
- Below the local log start the object store is read, in a helper thread; the answer leaves when that is there. What is
  not in the page cache is read by a helper thread first.
- Records are file slices from here to the socket, but for small pieces.
v7 sessions (KIP-227) · v9 leader epochs (KIP-320) · v12 truncation by epoch (KIP-595) · v13 topic ids (KIP-516) ·
v16 current leader (KIP-951)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_plan import ByteBudget
from appliance.partition.fetch_sessions import FetchContext, FetchSessions, SessionPartition
from appliance.server.context import Broker, Partition, RemoteReader
from appliance.server.handlers.fetch_answer import TOPIC_IDS_SINCE, add_partition, encode_with_ranges
from appliance.server.handlers.fetch_read import FetchReader, PartitionRead, is_cold, warm_up
from appliance.server.handlers.read_replica import selects_by_rack
from appliance.server.handlers.replica_fetch import ReplicaFetchHandler
from appliance.server.handlers.replica_fetch_fast import remember
from appliance.server.requests import Pending, Request
from appliance.tiering.fetcher import RemoteRead
from appliance.wire.messages.fetch import FetchRequest, FetchResponse

BATCHES_SINCE = 4
REPLICA_STATE_SINCE = 15
FOLLOWER_READS_SINCE = 11
"""From here on any reader may read from a follower, as in Apache Kafka; the selector only says who is sent there."""
REMOTE_READS_MAX = 4
"""Partitions of one request that are read from the object store; others of them wait for the next request."""
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_turn = attrgetter("turn")


class FetchHandler:
    """Knows the sessions of its broker."""

    def __init__(self, sessions: FetchSessions, max_bytes: int) -> None:
        self.sessions = sessions
        self.followers = ReplicaFetchHandler()
        self.max_bytes = max_bytes
        """`fetch.max.bytes`: no answer is larger, apart from a first batch that is."""
        self.old: Callable[[Broker, Request], Pending] | None = None
        """What serves the versions that know no batches."""

    def handle(self, broker: Broker, request: Request) -> FetchResponse | Pending:
        if request.api_version < BATCHES_SINCE and self.old is not None:
            return self.old(broker, request)
        body = cast(FetchRequest, request.body)
        if max(body.replica_id, body.replica_state.replica_id) >= 0:
            answer = self.followers.handle(broker, request)
            if not isinstance(answer, FetchResponse):
                remember(request, body, broker.partitions.generation)
            return answer
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
        operation = FetchOperation(broker, request, body, self, context)
        operation.start()
        return operation.pending


class FetchOperation:
    """One fetch: read, and if there is not enough, wait."""

    def __init__(
        self, broker: Broker, request: Request, body: FetchRequest, handler: FetchHandler, context: FetchContext
    ) -> None:
        self.broker = broker
        self.request = request
        self._sessions = handler.sessions
        self.context = context
        self.session = context.session
        self.pending = request.pending()
        self._isolation_level = body.isolation_level
        replica_id = body.replica_state.replica_id if request.api_version >= REPLICA_STATE_SINCE else body.replica_id
        rack = body.rack_id if body.rack_id and selects_by_rack(broker.config) else ""
        may_follow = request.api_version >= FOLLOWER_READS_SINCE
        self._reader = FetchReader(
            broker, body.isolation_level, replica_id, rack, may_follow=may_follow, access=request.access
        )
        self._max_bytes = min(body.max_bytes, handler.max_bytes)
        self._min_bytes = min(body.min_bytes, self._max_bytes)
        self._max_wait_ms = body.max_wait_ms
        self._reads: dict[SessionPartition, PartitionRead] = {}
        """The newest read of each partition, in the order of service."""
        self._available = 0
        """Bytes that these reads bring."""
        self._changed: dict[SessionPartition, None] = {}
        """Partitions to look at again at the end of this tick."""
        self._kept = False
        self._cancel_timer: Callable[[], None] = _nothing

    def start(self) -> None:
        context, session = self.context, self.session
        if context.error:
            self._send(FetchResponse(error_code=context.error))
            return
        answers_now = self._read(session.in_turn())
        if answers_now or self._available >= self._min_bytes or self._max_wait_ms <= 0 or not session.partitions:
            self._finish()
        else:
            self._wait()

    # Waiting

    def _wait(self) -> None:
        session = self.session
        if not session.is_watching:
            session.is_watching = True
            for partition, read in self._reads.items():
                partition.watch(read.hosted)
        session.reader = self
        timer = self.broker.background.schedule(self._max_wait_ms, self._timed_out)
        self._cancel_timer = timer.cancel
        self.pending.on_close(self._given_up)

    def changed(self, partition: SessionPartition) -> None:
        """There may be more of this partition now: look when all others have been woken in this tick, too."""
        if not self._changed:
            server = self.request.connection.server
            server.after_write.append(self._look)
            server.begin_tick()
        self._changed[partition] = None

    def superseded(self) -> None:
        """Another connection has gone on with the session."""
        self._stop_waiting()
        self._answer()

    def _given_up(self) -> None:
        """The connection has ended."""
        self._stop_waiting()
        if not self.session.session_id:
            self.session.stop_watching()

    def _look(self) -> None:
        if self.session.reader is not self:
            return
        changed = sorted(self._changed, key=_turn) if len(self._changed) > 1 else list(self._changed)
        self._changed = {}
        if self._read(changed) or self._available >= self._min_bytes:
            self._stop_waiting()
            if len(self._reads) > len(changed):
                self._read_again(changed)
            self._finish()

    def _timed_out(self) -> None:
        self._stop_waiting()
        self._read_again(())
        self._finish()

    def _stop_waiting(self) -> None:
        self._cancel_timer()
        session = self.session
        if session.reader is self:
            session.reader = None
            if session.has_ended or not (session.session_id or self.context.wants_session):
                session.stop_watching()

    # Reading

    def _read(self, partitions: Iterable[SessionPartition]) -> bool:
        """Read these partitions; returns whether one of them must be answered without waiting."""
        budget = ByteBudget(self._max_bytes)
        reads, session, reader = self._reads, self.session, self._reader
        answers_now = False
        for partition in partitions:
            if partition.session is not session:
                continue
            read = reader.read(partition, budget)
            before = reads.get(partition)
            if before is not None:
                self._available -= before.size
            reads[partition] = read
            self._available += read.size
            if read.is_quiet:
                # Nothing to do with it until it changes, of which it tells.
                session.changed.pop(partition, None)
                if session.is_watching:
                    partition.watch(read.hosted)
            elif read.answers_now:
                answers_now = True
        return answers_now

    def _read_again(self, fresh: Iterable[SessionPartition]) -> None:
        """Together all that brought something earlier, unless it was read just now: files may have gone meanwhile."""
        again = [partition for partition, read in self._reads.items() if read.size]
        if len(again) > 1 or any(partition not in fresh for partition in again):
            again.sort(key=_turn)
            self._read(again)

    # Answering

    def _finish(self) -> None:
        cold = [read for read in self._reads.values() if read.is_cold or is_cold(read)]
        if cold:
            self._warm(cold)
        else:
            self._finish_cached()

    def _warm(self, cold: list[PartitionRead]) -> None:
        """Let a helper thread read from the disk what the loop would have to wait for."""
        self._keep()
        isolation_level = self._isolation_level

        def work() -> None:
            for read in cold:
                warm_up(read, isolation_level)

        def done(result: Exception | None) -> None:
            # Whatever came of it: the answer can be sent, at worst slowly.
            budget = ByteBudget(self._max_bytes)
            for read in self._reads.values():
                if not read.is_cold:
                    budget.taken(read.size)
            for partition, read in self._reads.items():
                if read.is_cold:
                    warmed = self._reads[partition] = self._reader.read(partition, budget, may_wait=True)
                    if warmed.range is not None:
                        warmed.range.retain()
            self._finish_cached()

        self.broker.background.run(work, done)

    def _finish_cached(self) -> None:
        remote = [read for read in self._reads.values() if read.is_remote]
        if remote:
            self._read_remote(remote[:REMOTE_READS_MAX])
        else:
            self._answer()

    def _read_remote(self, chosen: list[PartitionRead]) -> None:
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
            self._answer()

        # What lies in files now may be deleted when the object store has answered.
        self._keep()
        limit_ms = max(self._max_wait_ms, self.broker.config.get("remote.fetch.max.wait.ms"))
        timer = self.broker.background.schedule(limit_ms, self._answer)
        self.broker.remote_threads.run(work, done)

    def _keep(self) -> None:
        if not self._kept:
            self._kept = True
            for read in self._reads.values():
                if read.range is not None:
                    read.range.retain()

    def _let_go(self) -> None:
        for read in self._reads.values():
            if read.range is not None:
                read.range.release()

    def _answer(self) -> None:
        self._keep()
        context, session = self.context, self.session
        if context.is_superseded:
            self._let_go()
            self._send(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id))
            return
        is_incremental = context.is_incremental
        response = FetchResponse()
        if is_incremental and len(self._reads) > 1:
            self._reads = {partition: self._reads[partition] for partition in sorted(self._reads, key=_turn)}
        unknown: list[PartitionRead] = []
        """They stand last, as in Kafka's answers."""
        for partition, read in self._reads.items():
            data = read.data
            news = partition.news(data.high_watermark, data.log_start_offset)
            if is_incremental:
                if not (news or read.size or read.answers_now):
                    continue
                if read.size:
                    session.served(partition)
            if data.error_code in _UNKNOWN:
                unknown.append(read)
            else:
                add_partition(self.broker, self.request, response, read)
        for read in unknown:
            add_partition(self.broker, self.request, response, read)
        if context.wants_session:
            self._open_session()
        response.session_id = session.session_id
        self._send(response)

    def _open_session(self) -> None:
        session = self.session
        if not self._sessions.open(session, self.broker.clock.monotonic_ms()):
            session.stop_watching()
            return
        for partition, read in self._reads.items():
            # What happened since it was read: the first request of the session looks at all once more.
            session.changed[partition] = None
            partition.watch(read.hosted)
        session.is_watching = True

    def _send(self, response: FetchResponse) -> None:
        self.pending.answer_items(encode_with_ranges(response, self.request.api_version, self.request.correlation_id))


def _fetch_remote(reader: RemoteReader, read: PartitionRead) -> RemoteRead | Exception:
    """Runs in a helper thread."""
    hosted = cast(Partition, read.hosted)
    offset, max_bytes = read.partition.fetch_offset, max(1, read.wanted_bytes)
    try:
        return reader.fetch(hosted.topic_id, hosted.partition, offset, max_bytes, read.visible_end)
    except Exception as error:
        return error


def _nothing() -> None:
    """Instead of cancelling a timer that was never started."""
