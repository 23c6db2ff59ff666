"""Fetching from one leader for all partitions that this broker follows there: one connection, one fetch session.

A fetch names what has changed since the last; the answer's batches are staged as they are and written with this tick's
writes, one write for each partition, and the next fetch leaves behind them. When a partition becomes due while a fetch
waits at the leader (a new leader was elected, a wait is over), a second fetch is sent behind it; the leader then ends
the first.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import NamedTuple, Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode, InvariantBroken
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.client.connection import error_of
from appliance.log.errors import OffsetOutOfRange
from appliance.partition.events import (
    AppendFetched,
    FetchAnswer,
    FetchLater,
    RaiseLogStart,
    StartAnew,
    StartFromTier,
    TruncateTo,
)
from appliance.partition.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from appliance.partition.follower import FIRST_BACKOFF_MS, FetchPosition, PartitionFollower
from appliance.partition.replica_sessions import ReplicaKey
from appliance.partition.replication_quota import ReplicationQuota
from appliance.records.batch import check_batch, split_batches
from appliance.records.errors import CorruptBatch
from appliance.wire.fetch_template import FetchTemplate
from appliance.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

FETCH_VERSION = 18
IN_FLIGHT_MAX = 2
FLUSH_POLL_MS = 2
LOGGED_FROM_MS = 500
"""Shorter waits are the usual ones after an election."""
_SESSION_LOST = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_EPOCH_MAX = 2**31 - 1
_ANY_SIZE = 2**31 - 1


class Following:
    """A partition that this broker follows."""

    __slots__ = ("hosted", "key", "machine", "sent", "sent_in", "sent_log_start", "shape", "template", "timer")

    def __init__(self, hosted: HostedPartition, machine: PartitionFollower) -> None:
        self.hosted = hosted
        self.machine = machine
        self.key: ReplicaKey = (hosted.topic_id, hosted.partition)
        self.sent = FetchPosition(-1, -1, -1)
        """What the leader was told last."""
        self.sent_in = -1
        """Number of the fetch that named it last."""
        self.sent_log_start = -1
        self.shape: tuple[object, ...] = ()
        """All that a fetch of this partition alone says and that seldom changes."""
        self.template: FetchTemplate | None = None
        self.timer: Timer | None = None

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class FetcherHost(Protocol):
    """What a fetcher needs of its broker."""

    @property
    def broker_id(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def config(self) -> BrokerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def background(self) -> Background: ...

    def begin_tick(self) -> None: ...

    def after_write(self, callback: Callable[[], None]) -> None:
        """Call back when all that is staged now was written."""

    def truncate(self, following: Following, offset: int) -> None: ...

    def start_anew(self, following: Following, offset: int) -> None: ...

    def start_from_tier(self, following: Following, leader_log_start_offset: int) -> None: ...

    def link_to(self, broker_id: int) -> BrokerLink | None:
        """A new connection; None while the broker has no address."""


class _Sent(NamedTuple):
    number: int
    session_epoch: int


class ReplicaFetcher:
    """All methods are called on the loop's thread."""

    def __init__(self, host: FetcherHost, leader_id: int, lane: int, quota: ReplicationQuota | None = None) -> None:
        self.leader_id = leader_id
        self.lane = lane
        self.last_sent_ms = host.clock.monotonic_ms()
        """When the last fetch left, or may have."""
        self.partitions: dict[ReplicaKey, Following] = {}
        self._host = host
        self._quota = quota
        """Of throttled replicas: all that this broker follows share it."""
        self._due: dict[Following, None] = {}
        self._forgotten: list[ReplicaKey] = []
        self._link: BrokerLink | None = None
        self._session_id = 0
        self._session_epoch = INITIAL_EPOCH
        self._number = 0
        self._in_flight = 0
        self._got: list[Following] = []
        """Those whose batches of this answer are staged."""
        self._failures = 0
        self._retry: Timer | None = None
        self._soon = False
        self.closed = False

    def __repr__(self) -> str:
        return f"fetcher {self.lane} from broker {self.leader_id}, {len(self.partitions)} partitions"

    # What is fetched

    def add(self, following: Following) -> None:
        self.partitions[following.key] = following
        self.fetch(following)

    def remove(self, following: Following) -> None:
        following.stop_waiting()
        self._due.pop(following, None)
        if self.partitions.get(following.key) is following:
            del self.partitions[following.key]
            self._forgotten.append(following.key)
            if not self.partitions:
                self._reset()
            else:
                self._soon_send()

    def fetch(self, following: Following) -> None:
        """The partition's position has changed, or its wait is over."""
        if self.partitions.get(following.key) is following:
            following.stop_waiting()
            self._due[following] = None
            self._soon_send()

    def address_changed(self) -> None:
        """The leader has registered anew, perhaps elsewhere."""
        self._failures = 0
        self._reset()
        self._soon_send()

    def close(self) -> None:
        self.closed = True
        for following in self.partitions.values():
            following.stop_waiting()
        self._reset()

    def _reset(self) -> None:
        """Begin anew: another connection, another session, every partition named again."""
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._in_flight = 0
        self._session_epoch = INITIAL_EPOCH
        self._forgotten = []
        for following in self.partitions.values():
            if following.timer is None:
                self._due[following] = None

    # Asking

    def _soon_send(self) -> None:
        """At the end of this turn of the loop, so that partitions that come together share a fetch."""
        if not self._soon and not self.closed:
            self._soon = True
            self._host.background.schedule(0, self._send_if_due)

    def _send_if_due(self) -> None:
        self._soon = False
        if self._in_flight < IN_FLIGHT_MAX and (not self._in_flight or self._due or self._forgotten):
            self._send()

    def _send(self) -> None:
        if self.closed or self._retry is not None or not self.partitions or self._host.broker_epoch < 0:
            if self._host.broker_epoch < 0 and not self.closed and self.partitions:
                self._later(FIRST_BACKOFF_MS)
            return
        if self._in_flight and self._session_epoch == INITIAL_EPOCH:
            # The session's number is not known yet; the answer sends what is due.
            return
        if self._link is None:
            self._link = self._host.link_to(self.leader_id)
            if self._link is None:
                self._failed("its address is not known")
                return
        config, host = self._host.config, self._host
        at_once = self._may_bring()
        if not at_once:
            return
        self._number += 1
        number, full = self._number, self._session_epoch == INITIAL_EPOCH
        timeout_ms = config.get("replica.fetch.wait.max.ms") + config.get("replica.socket.timeout.ms")
        link, frame = self._link, None
        if len(self._due) == 1 and not full and not self._forgotten and self._quota is None:
            frame = self._frame_of_one(link, next(iter(self._due)), number)
        self._in_flight += 1
        self.last_sent_ms = host.clock.monotonic_ms()
        if frame is not None:
            link.call_encoded(
                frame, FetchResponse, FETCH_VERSION, timeout_ms, lambda answer: self._answered(link, number, answer)
            )
        else:
            request = self._request(at_once, self._session_epoch, self._named(number, at_once))
            if not full:
                request.forgotten_topics_data = self._left_out()
            self._forgotten = []
            link.call(request, FETCH_VERSION, timeout_ms, lambda answer: self._answered(link, number, answer))
        if not full:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < _EPOCH_MAX else 1

    def _request(self, at_once: int, session_epoch: int, topics: list[FetchTopic]) -> FetchRequest:
        config, host = self._host.config, self._host
        return FetchRequest(
            replica_state=ReplicaState(replica_id=host.broker_id, replica_epoch=host.broker_epoch),
            max_wait_ms=config.get("replica.fetch.wait.max.ms"),
            min_bytes=config.get("replica.fetch.min.bytes"),
            max_bytes=min(at_once, config.get("replica.fetch.response.max.bytes")),
            session_id=self._session_id,
            session_epoch=session_epoch,
            topics=topics,
        )

    def _frame_of_one(self, link: BrokerLink, following: Following, number: int) -> bytearray | None:
        """The usual fetch, which names one partition and differs from the last one in numbers only; None: another."""
        host, machine = self._host, following.machine
        position, log_start_offset = machine.position, machine.log_start_offset
        epochs = (position.leader_epoch, position.last_fetched_epoch)
        shape = (*epochs, log_start_offset, self._session_id, host.broker_epoch, host.config)
        if shape != following.shape:
            # Built when the same comes once more: most partitions are quiet.
            following.shape, following.template = shape, None
            return None
        template = following.template
        if template is None:

            def make(session_epoch: int, fetch_offset: int, high_watermark: int) -> FetchRequest:
                at = FetchPosition(position.leader_epoch, fetch_offset, position.last_fetched_epoch)
                row = self._row(following, at, high_watermark, host.config.get("replica.fetch.max.bytes"))
                topic = FetchTopic(topic_id=following.key[0], partitions=[row])
                return self._request(_ANY_SIZE, session_epoch, [topic])

            template = following.template = FetchTemplate(make, FETCH_VERSION, link.client_id)
        if not template.usable:
            return None
        self._due = {}
        following.sent, following.sent_in, following.sent_log_start = position, number, log_start_offset
        return template.frame(self._session_epoch, position.offset, max(0, machine.high_watermark))

    @staticmethod
    def _row(following: Following, at: FetchPosition, high_watermark: int, partition_max_bytes: int) -> FetchPartition:
        return FetchPartition(
            partition=following.key[1],
            current_leader_epoch=at.leader_epoch,
            fetch_offset=at.offset,
            last_fetched_epoch=at.last_fetched_epoch,
            log_start_offset=following.machine.log_start_offset,
            partition_max_bytes=partition_max_bytes,
            high_watermark=high_watermark,
        )

    def _may_bring(self) -> int:
        """Bytes that the next answer may bring; 0: throttled, and it is sent when the wait is over."""
        if self._quota is None:
            return _ANY_SIZE
        rate = self._rate
        wait_ms = self._quota.wait_ms(rate, self._host.clock.monotonic_ms())
        if wait_ms:
            self._later(wait_ms)
            return 0
        return min(rate, _ANY_SIZE)

    @property
    def _rate(self) -> int:
        rate: int = self._host.config.get("follower.replication.throttled.rate")
        return rate

    def _named(self, number: int, at_once: int) -> list[FetchTopic]:
        """What the leader does not know of yet, by topic."""
        topics: dict[uuid.UUID, FetchTopic] = {}
        partition_max_bytes = min(at_once, self._host.config.get("replica.fetch.max.bytes"))
        due, self._due = self._due, {}
        for following in due:
            machine = following.machine
            position = machine.position
            following.sent, following.sent_in = position, number
            following.sent_log_start = machine.log_start_offset
            topic_id = following.key[0]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(self._row(following, position, max(0, machine.high_watermark), partition_max_bytes))
        return list(topics.values())

    def _left_out(self) -> list[ForgottenTopic]:
        topics: dict[uuid.UUID, ForgottenTopic] = {}
        for key in self._forgotten:
            if key not in self.partitions:
                topics.setdefault(key[0], ForgottenTopic(topic_id=key[0])).partitions.append(key[1])
        return list(topics.values())

    # Answers

    def _answered(self, link: BrokerLink, number: int, answer: Struct | Exception) -> None:
        if link is not self._link or self.closed:
            return
        self._in_flight -= 1
        if not isinstance(answer, FetchResponse):
            self._failed(str(answer))
            return
        error = error_of(answer.error_code)
        if error:
            self._refused(error)
            return
        if self._failures:
            _log.info("%r: fetching again", self)
            self._failures = 0
        if self._session_epoch == INITIAL_EPOCH:
            self._session_id = answer.session_id
            self._session_epoch = FINAL_EPOCH if not answer.session_id else 1
        size = 0
        for topic in answer.responses:
            for data in topic.partitions:
                following = self.partitions.get((topic.topic_id, data.partition_index))
                if following is not None and following.sent_in <= number:
                    size += len(data.records or b"")
                    self._take(following, data)
        if self._quota is not None:
            self._quota.moved(size, self._rate, self._host.clock.monotonic_ms())
        if self._got:
            self._host.begin_tick()
            self._host.after_write(self._written)
        else:
            self._send_if_due()

    def _written(self) -> None:
        """The tick has written what was staged: what follows comes next."""
        got, self._got = self._got, []
        for following in got:
            machine = following.machine
            if following.hosted.acks_wait_for_flush:
                # What the leader hears of is durable; a flush takes a while.
                self._wait(following, FetchLater(FLUSH_POLL_MS, ErrorCode.NONE))
            elif machine.log_end_offset == following.sent.offset:
                self._wait(following, machine.failed())
            elif self.partitions.get(following.key) is following and following.timer is None:
                self._due[following] = None
        self._send_if_due()

    def _take(self, following: Following, data: PartitionData) -> None:
        """One row of an answer."""
        hosted, machine = following.hosted, following.machine
        if hosted.cutting or hosted.follower is not machine:
            return
        diverging = data.diverging_epoch
        answer = FetchAnswer(
            leader_epoch=following.sent.leader_epoch,
            fetch_offset=following.sent.offset,
            error=error_of(data.error_code),
            high_watermark=data.high_watermark,
            log_start_offset=data.log_start_offset,
            diverging_epoch=diverging.epoch,
            diverging_end_offset=diverging.end_offset,
            has_records=bool(data.records),
        )
        for effect in machine.answered(answer):
            match effect:
                case AppendFetched():
                    self._append(following, data)
                case TruncateTo(offset):
                    self._host.truncate(following, offset)
                case StartAnew(offset):
                    self._host.start_anew(following, offset)
                case StartFromTier(log_start_offset):
                    self._host.start_from_tier(following, log_start_offset)
                case RaiseLogStart(offset):
                    self._raise_log_start(following, offset)
                case FetchLater():
                    self._wait(following, effect)
        if data.tiered_end_offset > hosted.tiered_end:
            hosted.tiered_to(data.tiered_end_offset)
        if machine.high_watermark > hosted.high_watermark:
            hosted.follower_advanced()

    def _append(self, following: Following, data: PartitionData) -> None:
        hosted, machine = following.hosted, following.machine
        now_ms = self._host.clock.now_ms()
        if hosted.write_refusal:
            self._wait(following, machine.failed())
            return
        try:
            for batch in split_batches(data.records or b""):
                header = check_batch(batch)
                if header.partition_leader_epoch > machine.leader_epoch:
                    raise CorruptBatch(f"a batch of leader epoch {header.partition_leader_epoch}, above the leader's")
                if header.next_offset > hosted.log.staged_end_offset:
                    hosted.append_replicated(batch, header, now_ms)
        except (CorruptBatch, OffsetOutOfRange) as error:
            _log.error("%r: what broker %d sent cannot be taken: %s", hosted, self.leader_id, error)
            self._wait(following, machine.failed())
        except InvariantBroken as error:
            hosted.go_offline(str(error))
            return
        if hosted.dirty:
            self._got.append(following)
        elif following.timer is None:
            self._due[following] = None

    def _raise_log_start(self, following: Following, offset: int) -> None:
        hosted = following.hosted
        try:
            hosted.raise_log_start(offset)
        except OffsetOutOfRange as error:
            _log.error("%r: the leader's log start cannot be taken over: %s", hosted, error)
        self._due[following] = None

    # Refusals and failures

    def _wait(self, following: Following, later: FetchLater) -> None:
        """The partition is named again after a while."""
        if self.partitions.get(following.key) is not following or following.timer is not None:
            return
        self._due.pop(following, None)
        if later.delay_ms >= LOGGED_FROM_MS:
            _log.info("%r: broker %d answers %s", following.hosted, self.leader_id, later.reason.name)

        def over() -> None:
            following.timer = None
            self.fetch(following)

        following.timer = self._host.background.schedule(later.delay_ms, over)

    def _refused(self, error: ErrorCode) -> None:
        """The whole fetch: another session, or a broker epoch that is not known there yet."""
        if error in _SESSION_LOST:
            self._reset()
            self._send_if_due()
        else:
            self._failed(error.name)

    def _failed(self, reason: str) -> None:
        if not self._failures:
            _log.info("%r: %s", self, reason)
        self._reset()
        limit_ms = self._host.config.get("replica.fetch.backoff.ms")
        self._later(min(FIRST_BACKOFF_MS << min(self._failures, 16), limit_ms))
        self._failures += 1

    def _later(self, delay_ms: int) -> None:
        def over() -> None:
            self._retry = None
            self._send_if_due()

        if self._retry is None and not self.closed:
            self._retry = self._host.background.schedule(delay_ms, over)
