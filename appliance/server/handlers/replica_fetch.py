"""Fetch by followers, versions 13 to 18: the leader's side of replication (P2 to P4).

- The broker epoch must be the committed one (STALE_BROKER_EPOCH), the leader epoch the leader's own. One that is higher
  ends service here at once (UNKNOWN_LEADER_EPOCH): there is a newer leader.
- A follower whose last record is of another history is told where that epoch ended here. Only a fetch that matches
  counts as an acknowledgement of all before its offset.
- Followers read to the log end, and are answered without a lease.
- A fetch costs what it names and what has changed, not what its session follows.
- Of a replica that is throttled on the leader's side (KIP-73) and not in sync, nothing is sent while the quota is used
  up; everything else is.
- What is not in the page cache is read by a helper thread first. Where even its place is not known, it comes with the
  next answer.
v15 replica id and epoch in a tagged field (KIP-903) · v17 · v18
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import cast

from appliance.base.disk import WouldWait
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.fetch_plan import ByteBudget
from appliance.partition.fetch_position import judge
from appliance.partition.replica_sessions import Followed, ReplicaSession, ReplicaSessions
from appliance.partition.replication_quota import ReplicationQuota, is_listed
from appliance.server.context import Broker, ReplicatedPartition
from appliance.server.handlers.fetch_answer import encode_with_ranges
from appliance.server.handlers.read_replica import selects_by_rack
from appliance.server.handlers.shared_answer import SharedAnswer
from appliance.server.page_cache import CACHED_PAGES, is_cached, read_if_cached, warm
from appliance.server.requests import FileRange, Pending, Request
from appliance.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

_log = logging.getLogger(__name__)

TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
COPIED_UP_TO_BYTES = 16_384
SESSIONS_MAX = 1_000
"""Followers' sessions: one for each fetching connection of each other broker."""


class ReplicaFetchHandler:
    """Knows the sessions of the followers."""

    def __init__(self) -> None:
        self._sessions: ReplicaSessions | None = None
        self._quota = ReplicationQuota()
        self._shared = SharedAnswer()

    def handle(self, broker: Broker, request: Request) -> FetchResponse | Pending:
        """The fetch of a request whose replica id is not negative."""
        body = cast(FetchRequest, request.body)
        if request.api_version < TOPIC_IDS_SINCE:
            return FetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        replica_id, broker_epoch = body.replica_id, -1
        if request.api_version >= REPLICA_STATE_SINCE:
            replica_id, broker_epoch = body.replica_state.replica_id, body.replica_state.replica_epoch
        replica = broker.image.brokers.get(replica_id)
        if replica is None or replica.broker_epoch != broker_epoch or replica_id == broker.broker_id:
            return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if self._sessions is None:
            self._sessions = ReplicaSessions(SESSIONS_MAX, broker.new_session_id)
        found, ended = self._sessions.find(body.session_id, body.session_epoch, replica_id, broker_epoch)
        for old in ended:
            for followed in old.partitions.values():
                _watch(followed, None)
        if isinstance(found, ErrorCode):
            return FetchResponse(error_code=found)
        request.connection.without_lease = True
        operation = ReplicaFetch(broker, request, body, found, self._quota, self._shared)
        return operation.start()


class ReplicaFetch:
    """One fetch: take in what the follower has, then answer or wait."""

    def __init__(
        self,
        broker: Broker,
        request: Request,
        body: FetchRequest,
        session: ReplicaSession,
        quota: ReplicationQuota,
        shared: SharedAnswer,
    ) -> None:
        self._broker = broker
        self._quota = quota
        self._shared = shared
        self._throttled_ms = 0
        """How long the quota is used up that something of this fetch waits for."""
        self._request = request
        self._body = body
        self._session = session
        # Not in the way of the next fetch: that ends this one's wait.
        self._pending = Pending(request.connection, request.api_version, request.correlation_id, blocks=False)
        self._looking = False
        session.tells_news = selects_by_rack(broker.config)
        self._cancel_timer: Callable[[], None] = _nothing
        self._topics: dict[uuid.UUID, FetchableTopicResponse] = {}
        self._last_topic: FetchableTopicResponse | None = None
        self._ranges: list[FileRange] = []
        self._cold: dict[Followed, tuple[ReplicatedPartition, int, int]] = {}
        """Where the disk has to be read to find the batches: partition, offset, bytes."""
        self._bytes = 0
        self._urgent = False

    def start(self) -> Pending:
        session, body = self._session, self._body
        self._pending.on_close(self._give_up)
        now_ms = self._broker.clock.monotonic_ms()
        for forgotten in body.forgotten_topics_data:
            for index in forgotten.partitions:
                left = session.forget((forgotten.topic_id, index))
                if left is not None:
                    _watch(left, None)
        for topic in body.topics:
            topic_id = topic.topic_id
            for wanted in topic.partitions:
                followed = session.follow((topic_id, wanted.partition))
                _take(followed, wanted)
                try:
                    self._acknowledge(followed, wanted, now_ms)
                except KafkaError as error:
                    self._fail(followed, error.code)
                except Exception:
                    _log.exception("the fetch of %s by broker %d failed", followed.key, session.replica_id)
                    self._fail(followed, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._read()
        if self._is_enough() or body.max_wait_ms <= 0 or not session.partitions:
            self._finish_as_read()
        else:
            self._wait()
        return self._pending

    # What the follower has

    def _find(self, followed: Followed) -> ReplicatedPartition:
        """The partition, led here in the epoch that the follower names. Raises: KafkaError."""
        last = followed.hosted
        # Usually nothing has changed; a partition that is led no more, or gone, has no leader machine.
        if (
            last is not None
            and last.leader is not None
            and last.leader_epoch == followed.current_leader_epoch
            and not last.recovering
            and self._session.replica_id in last.leader.followers
        ):
            return last  # type: ignore[no-any-return]
        topic_id, index = followed.key
        hosted: ReplicatedPartition | None = self._broker.partitions.get_by_id(topic_id, index)
        if hosted is not followed.hosted:
            _watch(followed, hosted)
        if hosted is None:
            known = topic_id in self._broker.image.topics_by_id
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER if known else ErrorCode.UNKNOWN_TOPIC_ID)
        if hosted.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if followed.current_leader_epoch > hosted.leader_epoch:
            hosted.superseded(followed.current_leader_epoch)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if followed.current_leader_epoch < hosted.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        leader = hosted.leader
        if leader is None or hosted.recovering:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self._session.replica_id not in leader.followers:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return hosted

    def _acknowledge(self, followed: Followed, wanted: FetchPartition, now_ms: int) -> None:
        hosted = self._find(followed)
        log, offset = hosted.log, wanted.fetch_offset
        verdict = judge(
            log.leader_epochs,
            wanted.last_fetched_epoch,
            offset,
            log_start_offset=hosted.log_start_offset,
            local_log_start_offset=log.local_log_start_offset,
            log_end_offset=hosted.log_end_offset,
        )
        if verdict.error:
            raise KafkaError(verdict.error)
        if not verdict.matches:
            self._data(followed).diverging_epoch = EpochEndOffset(
                epoch=verdict.diverging_epoch, end_offset=verdict.diverging_end_offset
            )
            followed.awaited = self._urgent = True
            return
        followed.matched = True
        session = self._session
        hosted.follower_fetched(
            session.replica_id, session.broker_epoch, offset, max(0, wanted.log_start_offset), now_ms
        )

    # What there is to tell

    def _read(self) -> None:
        session = self._session
        budget = ByteBudget(max(0, self._body.max_bytes - self._bytes), nothing_yet=not self._bytes)
        for followed in list(session.ready):
            try:
                if self._read_one(followed, budget):
                    del session.ready[followed]
            except WouldWait:
                hosted = cast(ReplicatedPartition, followed.hosted)
                self._cold[followed] = (hosted, followed.fetch_offset, budget.share(followed.max_bytes))
            except KafkaError as error:
                self._fail(followed, error.code)
            except OSError as error:
                _log.error("fetch of %s by broker %d: %s", followed.key, session.replica_id, error)
                self._fail(followed, ErrorCode.KAFKA_STORAGE_ERROR)
            except Exception:
                _log.exception("the fetch of %s by broker %d failed", followed.key, session.replica_id)
                self._fail(followed, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _read_one(self, followed: Followed, budget: ByteBudget) -> bool:
        """Whether nothing more is to be told of the partition than this."""
        hosted = self._find(followed)
        if followed.awaited:
            return True
        offset = followed.fetch_offset
        if offset < hosted.log_end_offset:
            share = budget.share(followed.max_bytes)
            if not share and not budget.nothing_yet:
                return False
            listed = hosted.config.leader_replication_throttled_replicas
            throttled = bool(listed) and self._is_throttled(listed, hosted)
            if throttled:
                rate, now_ms = self._rate, self._broker.clock.monotonic_ms()
                self._throttled_ms = self._quota.wait_ms(rate, now_ms)
                if self._throttled_ms:
                    return False
                share = min(share, rate)
            # Whatever a helper has just read is read here, at worst slowly: a follower must get on.
            pages = None if followed.warmed_offset == offset else CACHED_PAGES
            found = hosted.log.read(offset, share, hosted.log_end_offset, budget.nothing_yet, pages)
            if found is not None and found.length:
                data = self._data(followed)
                descriptor = found.file_descriptor
                small = None
                if found.length <= COPIED_UP_TO_BYTES:
                    small = read_if_cached(descriptor, found.position, found.length)
                if small is not None:
                    data.records = small
                else:
                    piece = FileRange(descriptor, found.position, found.length, found)
                    piece.retain()
                    self._ranges.append(piece)
                    data.records = piece  # type: ignore[assignment]
                self._bytes += found.length
                budget.taken(found.length)
                if throttled:
                    self._quota.moved(found.length, rate, now_ms)
                followed.awaited = True
                return True
            return False
        moved_start = followed.told_log_start_offset != hosted.log_start_offset
        if (
            moved_start
            or followed.told_high_watermark != hosted.high_watermark
            or followed.told_tiered_end != hosted.tiered_end
        ):
            self._session.news[followed] = None
            if self._session.tells_news or (moved_start and followed.told_log_start_offset >= 0):
                self._urgent = True
        return True

    def _is_throttled(self, listed: tuple[str, ...], hosted: ReplicatedPartition) -> bool:
        leader = hosted.leader
        in_sync = leader is not None and self._session.replica_id in leader.isr
        return not in_sync and is_listed(listed, hosted.partition, self._broker.broker_id)

    @property
    def _rate(self) -> int:
        rate: int = self._broker.config.get("leader.replication.throttled.rate")
        return rate

    def _data(self, followed: Followed) -> PartitionData:
        """A row of the answer, with the numbers as they are now."""
        hosted = followed.hosted
        topic_id, index = followed.key
        topic = self._last_topic
        if topic is None or topic.topic_id is not topic_id:
            topic = self._topic(topic_id)
        data = PartitionData(partition_index=index, records=b"", high_watermark=-1)
        topic.partitions.append(data)
        if hosted is not None:
            data.high_watermark = followed.told_high_watermark = hosted.high_watermark
            data.log_start_offset = followed.told_log_start_offset = hosted.log_start_offset
            followed.told_tiered_end = hosted.tiered_end
            if hosted.tiered_end > 0:
                data.tiered_end_offset = hosted.tiered_end
        self._session.news.pop(followed, None)
        return data

    def _topic(self, topic_id: uuid.UUID) -> FetchableTopicResponse:
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = FetchableTopicResponse(topic_id=topic_id)
        self._last_topic = topic
        return topic

    def _fail(self, followed: Followed, error: ErrorCode) -> None:
        """The follower has to name the partition again before it hears more of it."""
        self._session.ready.pop(followed, None)
        followed.awaited = True
        self._data(followed).error_code = error
        self._urgent = True

    def _is_enough(self) -> bool:
        return self._urgent or bool(self._cold) or self._bytes >= max(1, self._body.min_bytes)

    # Waiting and answering

    def _wait(self) -> None:
        self._session.on_ready, self._session.end_wait = self._changed, self._finish
        wait_ms = min(self._body.max_wait_ms, self._throttled_ms or self._body.max_wait_ms)
        self._cancel_timer = self._broker.background.schedule(wait_ms, self._finish).cancel

    def _changed(self) -> None:
        """Look once, when all partitions have been written in this tick."""
        if not self._looking:
            self._looking = True
            server = self._request.connection.server
            server.after_write.append(self._look)
            server.begin_tick()

    def _look(self) -> None:
        self._looking = False
        if self._pending.answered or self._request.connection.closed:
            return
        request, body, session = self._request, self._body, self._session
        items = self._shared.for_another(session, body, request.api_version, request.correlation_id)
        if items is not None:
            self._cancel_timer()
            session.on_ready = session.end_wait = None
            session.answered(self._broker.clock.monotonic_ms())
            self._pending.answer_items(items)
            return
        self._read()
        if self._is_enough():
            self._finish_as_read()

    def _give_up(self) -> None:
        self._cancel_timer()
        self._session.on_ready = self._session.end_wait = None
        for piece in self._ranges:
            piece.release()
        self._ranges = []

    def _finish(self) -> None:
        """The wait is over, or the next fetch has come: with whatever there is by now."""
        if not self._pending.answered and not self._request.connection.closed:
            self._read()
        self._finish_as_read()

    def _finish_as_read(self) -> None:
        self._cancel_timer()
        session = self._session
        session.on_ready = session.end_wait = None
        if self._pending.answered or self._request.connection.closed:
            return
        for followed in list(session.news):
            self._data(followed)
        ranges = self._ranges
        cold = [one for one in ranges if not is_cached(one.file_descriptor, one.position, one.length)] if ranges else []
        if not cold and not self._cold:
            self._answer()
            return
        pieces = [(each.file_descriptor, each.position, each.length) for each in cold]
        unknown = list(self._cold.values())
        for followed, (_, offset, _) in self._cold.items():
            followed.warmed_offset = offset

        def work() -> None:
            for piece in pieces:
                warm(*piece)
            for hosted, offset, share in unknown:
                _find_and_warm(hosted, offset, share)

        # Whatever came of it: the answer can be sent, at worst slowly.
        self._broker.background.run(work, lambda _: self._answer())

    def _answer(self) -> None:
        if self._pending.answered or self._request.connection.closed:
            return
        session, version = self._session, self._request.api_version
        response = FetchResponse(session_id=session.session_id, responses=list(self._topics.values()))
        session.answered(self._broker.clock.monotonic_ms())
        items = encode_with_ranges(response, version, self._request.correlation_id)
        if self._bytes and not self._ranges and not self._cold:
            self._shared.keep(response, session, self._body, version, items)
        self._ranges = []
        self._pending.answer_items(items)


def _find_and_warm(hosted: ReplicatedPartition, offset: int, max_bytes: int) -> None:
    """Runs in a helper thread."""
    try:
        found = hosted.log.read(offset, max_bytes, hosted.log_end_offset)
        if found is not None:
            found.retain()
            try:
                warm(found.file_descriptor, found.position, found.length)
            finally:
                found.release()
    except (KafkaError, OSError) as error:
        # The loop comes to the same place and answers for it.
        _log.info("warming partition %d of %s: %s", hosted.partition, hosted.topic, error)


def _take(followed: Followed, wanted: FetchPartition) -> None:
    followed.fetch_offset = wanted.fetch_offset
    followed.current_leader_epoch = wanted.current_leader_epoch
    followed.last_fetched_epoch = wanted.last_fetched_epoch
    followed.max_bytes = wanted.partition_max_bytes
    followed.matched = followed.awaited = False


def _watch(followed: Followed, hosted: ReplicatedPartition | None) -> None:
    """Let this partition, and no other, tell the session of its changes."""
    if followed.hosted is not None and followed in followed.hosted.followed_by:
        followed.hosted.followed_by.remove(followed)
    followed.hosted = hosted
    if hosted is not None:
        hosted.followed_by.append(followed)


def _nothing() -> None:
    """Instead of cancelling a timer that was never started."""
