"""One partition on this broker: the thin shell around its log and its leader machine."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence

from appliance.base.config import TopicConfig
from appliance.base.errors import ErrorCode, InvariantBroken, KafkaError
from appliance.base.ids import TopicPartition
from appliance.broker_actors.flush_before_ack import FlushBeforeAck
from appliance.broker_actors.own_appends import OwnAppends
from appliance.broker_actors.partition_host_view import (
    Leadership,
    OnCommitted,
    Ticking,
    earlier_leaders_of,
)
from appliance.controller.image import PartitionState
from appliance.controller.records import LeaderRecoveryState
from appliance.log.errors import LogWriteFailed
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_state import Duplicate
from appliance.partition.events import Effect, IsrDecided, MinInsyncReplicasSet, ProposeIsr
from appliance.partition.follower import PartitionFollower
from appliance.partition.leader import PartitionLeader
from appliance.partition.leader_start import LeaderStart
from appliance.partition.produce_checks import ANY_AGE_MS, LOG_APPEND_TIME
from appliance.partition.purgatory import AckPurgatory, Waiter
from appliance.partition.recompression import AS_PRODUCED
from appliance.partition.replica_sessions import Followed
from appliance.records.batch import LENGTH_END, BatchHeader, set_log_append_time
from appliance.server.metadata_view import INTERNAL_TOPICS

_log = logging.getLogger(__name__)


class HostedPartition:
    """A replica of one partition. All methods are called on the loop's thread, unless they say otherwise."""

    __slots__ = (
        "_flushes",
        "_host",
        "_leadership",
        "_own",
        "acks",
        "batch_max_bytes",
        "broker_id",
        "bytes_in",
        "config",
        "cutting",
        "dirty",
        "followed_by",
        "follower",
        "high_watermark",
        "is_leader",
        "last_fetch_ms",
        "leader",
        "leader_epoch",
        "log",
        "log_end_offset",
        "log_was_lost",
        "offline",
        "partition",
        "plain",
        "records_in",
        "recovering",
        "start",
        "superseded_by",
        "tiered_end",
        "topic",
        "topic_id",
        "waiters",
        "write_refusal",
    )

    def __init__(
        self,
        host: Ticking,
        broker_id: int,
        topic: str,
        topic_id: uuid.UUID,
        partition: int,
        log: PartitionLog,
        config: TopicConfig,
        high_watermark: int,
    ) -> None:
        self._host = host
        self.broker_id = broker_id
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.config = config
        log.update_config(config)
        self.leader: PartitionLeader | None = None
        self._leadership: Leadership | None = None
        self.leader_epoch = -1
        self.is_leader = False
        self.recovering = False
        """Leading, but it must read and claim the tier's manifest before it serves."""
        self.log_was_lost = False
        """Elected uncleanly with an empty log: what readers have seen of the partition is not here."""
        self.start: LeaderStart | None = None
        """Leading, but an earlier leader may still be answering (P1)."""
        self.superseded_by = -1
        """The highest leader epoch that another broker has named (P2)."""
        self.follower: PartitionFollower | None = None
        """Set while this replica follows a leader."""
        self.followed_by: list[Followed] = []
        """Places in the fetch sessions of followers, told of every change."""
        self.last_fetch_ms: dict[int, int] = {}
        """When the last fetch to an earlier leader left, by broker id."""
        self.cutting = False
        """A helper thread truncates the log: nobody else may touch it."""
        self.offline = ""
        """Why the partition is out of service; empty while it is not."""
        self.write_refusal = ""
        """Why its data directory takes no writes now; empty while it does. Its host sets it."""
        self.log_end_offset = log.log_end_offset
        self.high_watermark = min(max(high_watermark, log.local_log_start_offset), log.log_end_offset)
        self.tiered_end = 0
        self.acks = AckPurgatory()
        self.waiters: dict[Waiter, None] = {}
        self.dirty = False
        self.plain = False
        self.batch_max_bytes = 0
        self.records_in = 0
        self.bytes_in = 0
        self._flushes = FlushBeforeAck(self, host)
        self._own = OwnAppends(self, host)

    def __repr__(self) -> str:
        role = f"leader in epoch {self.leader_epoch}" if self.is_leader else "not leading"
        return (
            f"{self.topic}-{self.partition} ({self.topic_id}): {role}, log [{self.log_start_offset}, "
            f"{self.log_end_offset}), high watermark {self.high_watermark}{', offline: ' if self.offline else ''}"
            f"{self.offline}"
        )

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> int:
        """The smallest log start among the live replicas, for DeleteRecords: wake the waiters when it rises."""
        start = self.log.log_start_offset
        return start if self.leader is None else self.leader.low_watermark(start)

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed readers may see."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def acks_wait_for_flush(self) -> bool:
        """`flush.messages=1`: nothing is acknowledged or shown to readers before it is durable."""
        return self.config.flush_messages == 1

    def refusal(self) -> ErrorCode:
        """NONE while this broker serves the partition as its leader, else the error for clients."""
        if self.plain or (self.is_leader and self._host.serving and self._may_serve()):
            return ErrorCode.NONE
        if self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def may_be_read(self) -> bool:
        """Whether this follower may give out what it knows to be committed (KIP-392)."""
        return self.follower is not None and not self.cutting and not self.offline and self._host.serving

    def _may_serve(self) -> bool:
        """Whether the leader may answer clients, if the broker may."""
        return (
            not self.offline
            and not self.recovering
            and self.start is None
            and self.superseded_by <= self.leader_epoch
            and (not self._host.soft_lease or self.has_healthy_isr())
        )

    def has_healthy_isr(self) -> bool:
        """B8: the others in sync have all fetched here so lately that none of them can have begun to lead."""
        leader, leadership = self.leader, self._leadership
        if leader is None or leadership is None or not leader.enough_in_sync:
            return False
        heard_since_ms = self._host.clock.monotonic_ms() - leadership.lease_ms
        heard = {
            one.session.replica_id for one in self.followed_by if one.is_healthy(self.leader_epoch, heard_since_ms)
        }
        return all(replica_id == self.broker_id or replica_id in heard for replica_id in leader.isr)

    # Leadership and configuration

    def lead(
        self,
        state: PartitionState,
        now_ms: int,
        replica_lag_time_max_ms: int,
        recovering: bool,
        start: LeaderStart | None = None,
        lease_ms: int = 0,
    ) -> None:
        """Lead from now on, in a new leader epoch; serve once `start` is over."""
        # Only then is it told who it was: thousands begin to lead at a time.
        if state.leader_epoch <= self.leader_epoch:
            raise InvariantBroken(f"{self!r} was to lead in epoch {state.leader_epoch} again")
        self._end_leadership()
        self.leader_epoch = state.leader_epoch
        self.is_leader = True
        self.recovering = recovering
        self.start = start
        self.follower = None
        self.log.leader_epochs.assign(state.leader_epoch, self.log_end_offset)
        self._begin_leadership(Leadership(state, now_ms, replica_lag_time_max_ms, lease_ms))

    def begun(self) -> None:
        """Nobody else can be answering any more: serve."""
        self.start = None
        self.reconsider()
        self.wake()

    def superseded(self, leader_epoch: int) -> None:
        """P2: somebody knows of a newer leader epoch: stop serving until the metadata says what it is."""
        if leader_epoch > self.superseded_by:
            self.superseded_by = leader_epoch
            self.plain = False
            self.acks.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.wake()
            self._host.metadata_wanted(self, leader_epoch)

    def follow(self, follower: PartitionFollower) -> None:
        """Follow a leader from now on."""
        self.leader_epoch = max(self.leader_epoch, follower.leader_epoch)
        # An epoch in which this replica led and wrote nothing is no part of its history.
        self.log.leader_epochs.truncate_from_end(self.log_end_offset)
        self.follower = follower

    def follower_advanced(self) -> None:
        """The leader has told of a higher high watermark."""
        if self.follower is not None and self.follower.high_watermark > self.high_watermark:
            self.high_watermark = self.follower.high_watermark
            if self.waiters:
                self._host.advanced(self)

    def append_replicated(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Stage a batch that the leader has sent, as it is. Raises: OffsetOutOfRange."""
        self.log.stage_replicated(batch, header, now_ms)
        if not self.dirty:
            self.dirty = True
            self._host.dirty.append(self)

    def was_cut(self) -> None:
        """The log was truncated or begun anew."""
        self.log_end_offset = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, self.log_end_offset)
        if self.follower is not None:
            self.high_watermark = self.follower.cut(self.log.log_start_offset, self.log_end_offset)
        self.wake()

    def _begin_leadership(self, leadership: Leadership) -> None:
        state = leadership.state
        self._leadership = leadership
        self.leader = PartitionLeader(
            broker_id=self.broker_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=state.isr,
            replicas=state.replicas,
            log_end_offset=self.log_end_offset,
            high_watermark=self.high_watermark,
            min_insync_replicas=self.config.min_insync_replicas,
            replica_lag_time_max_ms=leadership.replica_lag_time_max_ms,
            started_ms=leadership.started_ms,
        )
        self._advance(self.leader.appended(self.log_end_offset))
        self.wake()

    def stop_leading(self, leader_epoch: int) -> None:
        """Another broker leads in `leader_epoch`, or nobody does."""
        self._end_leadership()
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

    def _end_leadership(self) -> None:
        # What was staged under this leadership is written, and answered, under it.
        self._host.write_now(self)
        self.is_leader = False
        self.recovering = False
        self.start = None
        self.leader = None
        self.follower = None
        self._leadership = None
        self.plain = False
        self.acks.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake()

    def isr_decided(self, state: PartitionState, now_ms: int) -> None:
        """The committed record of the partition changed within this leader epoch."""
        if self.leader is not None and self._leadership is not None:
            self._leadership = self._leadership._replace(state=state)
            if self.start is not None:
                self.start.follow(earlier_leaders_of(state))
            self.isr_answered(state.isr, state.partition_epoch, state.replicas, now_ms)

    def isr_answered(self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...], now_ms: int) -> None:
        """The ISR is committed, as the metadata or the answer to AlterPartition say."""
        leader = self.leader
        if leader is None:
            return
        leader.handle(IsrDecided(isr, partition_epoch, replicas), now_ms)
        self._advance(leader.high_watermark)
        if not leader.enough_in_sync:
            # The high watermark stands still from here on: those who wait for it are told why.
            self.acks.fail_all(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self.reconsider()
        self.wake()

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower whose history matches has everything before `offset`."""
        leader = self.leader
        if leader is None:
            return
        follower = leader.followers[replica_id]
        if log_start_offset != follower.log_start_offset:
            follower.log_start_offset = log_start_offset
            self._host.advanced(self)
        high_watermark = leader.follower_fetched(replica_id, broker_epoch, offset, now_ms)
        if high_watermark > self.high_watermark:
            self._advance(high_watermark)
            self._host.advanced(self)
        if replica_id not in leader.isr:
            self.act(leader.caught_up(replica_id))

    def act(self, effects: list[Effect]) -> None:
        """Do what the leader machine asks for."""
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self._host.propose_isr(self, effect.isr, effect.partition_epoch)

    def configure(self, config: TopicConfig, now_ms: int) -> None:
        """The topic has other configs now."""
        self.config = config
        self.log.update_config(config)
        if self.leader is not None and self.leader.min_insync_replicas != config.min_insync_replicas:
            self.leader.handle(MinInsyncReplicasSet(config.min_insync_replicas), now_ms)
            self._advance(self.leader.high_watermark)
        self.reconsider()

    def reconsider(self) -> None:
        """Find out anew whether the short way of a produce request may be taken."""
        self.batch_max_bytes = min(self.config.max_message_bytes, self.config.segment_bytes)
        self.plain = (
            self.leader is not None
            and self._host.serving
            and not self.write_refusal
            and self._may_serve()
            and (not self._host.soft_lease or len(self.leader.replicas) == 1)
            and self.leader.enough_in_sync
            and self.config.message_timestamp_type != LOG_APPEND_TIME
            and self.config.message_timestamp_before_max_ms >= ANY_AGE_MS
            and not self.config.is_compacted
            and self.config.compression_type == AS_PRODUCED
            and self.topic not in INTERNAL_TOPICS
            and not self.acks_wait_for_flush
        )

    def recovered(self) -> None:
        """The log agrees with the tier, for which it may have been cut or begun anew: the partition may be served."""
        self.recovering = False
        self.log_end_offset = self.log.log_end_offset
        self.high_watermark = min(max(self.high_watermark, self.log.local_log_start_offset), self.log_end_offset)
        if self._leadership is not None:
            self._begin_leadership(self._leadership)
            state = self._leadership.state
            if self.leader is not None and state.leader_recovery_state is LeaderRecoveryState.RECOVERING:
                self.act(self.leader.report())
        self.reconsider()

    # Appending

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Stage a checked batch for this tick's write; returns its base offset (the old one of a duplicate).

        Raises:
            KafkaError: producer epoch or sequence do not fit, or the log takes no writes now.
        """
        if header[9] >= 0:
            verdict = self.log.producer_state.check(header)
            if verdict is not None:
                if isinstance(verdict, Duplicate):
                    return verdict.base_offset
                raise KafkaError(verdict)
        if not self.plain:
            header = self._prepared(batch, header, now_ms)
        try:
            base_offset = self.log.stage(batch, header, self.leader_epoch, now_ms)
        except InvariantBroken as error:
            self.go_offline(str(error))
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.bytes_in += header[1] + LENGTH_END
        if not self.dirty:
            self.dirty = True
            self._host.dirty.append(self)
        return base_offset

    def _prepared(self, batch: memoryview, header: BatchHeader, now_ms: int) -> BatchHeader:
        """What the short way has no need of."""
        if self.write_refusal:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.write_refusal)
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline)
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            return set_log_append_time(batch, now_ms)
        return header

    def append_records(self, batch: bytes, on_committed: OnCommitted) -> None:
        """Append a batch of a coordinator's own; `on_committed` is called once, on the loop."""
        self._own.append_records(batch, on_committed)

    def append_imported(self, batches: Sequence[tuple[memoryview, BatchHeader]], on_committed: OnCommitted) -> None:
        """Append checked batches of another log that keep their offsets; `on_committed` is called once, on the loop."""
        self._own.append_imported(batches, on_committed)

    def begin_anew_at(self, offset: int) -> None:
        """Let a log that is still empty begin at another offset, for an import. Raises: OSError."""
        epoch = self.leader_epoch
        self.log.truncate_fully_and_start_at(offset, epochs=[(epoch, offset)] if epoch >= 0 else ())
        self.recovered()

    def flush_failed(self, error: LogWriteFailed) -> None:
        """A flush that somebody else made of this log has failed."""
        self._host.write_failed(error)

    def written(self) -> None:
        """This tick's write is done, or has failed: move the ends, answer internal producers."""
        end = self.log.log_end_offset
        if self.is_leader:
            self.records_in += end - self.log_end_offset
        self.log_end_offset = end
        if self.config.flush_messages == 1:
            self._flushes.flush()
        elif self.leader is not None:
            high_watermark = self.leader.appended(end)
            if high_watermark > self.high_watermark:
                self.high_watermark = high_watermark
                if self.acks:
                    self.acks.advanced(high_watermark)
        elif self.follower is not None:
            self.high_watermark = self.follower.appended(end)
        if self._own.staged:
            self._own.written(end)

    def durable_to(self, offset: int) -> None:
        """Everything below `offset` survives a power cut: now it may be acknowledged and read."""
        if self.leader is None:
            if self.follower is not None:
                self.high_watermark = self.follower.appended(max(offset, self.follower.log_end_offset))
            return
        high_watermark = self.leader.appended(max(offset, self.leader.log_end_offset))
        if high_watermark > self.high_watermark:
            self._advance(high_watermark)
            self.wake()

    def _advance(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
        if self.acks:
            self.acks.advanced(self.high_watermark)

    def numbers_moved(self) -> None:
        """The high watermark is higher: readers look again, followers hear of it with what comes next."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.woken(self)
        for followed in self.followed_by:
            followed.has_news()

    def wake(self) -> None:
        """Let those who wait look again."""
        if self.waiters:
            for waiter in list(self.waiters):
                waiter.woken(self)
        if self.followed_by:
            for followed in self.followed_by:
                followed.changed()

    def go_offline(self, reason: str) -> None:
        """We did something wrong, or the disk did: nothing of this partition is believed any more."""
        if self.offline:
            return
        _log.error("partition goes offline: %r: %s", self, reason)
        self.offline = reason
        self._end_leadership()
        self._host.went_offline(self)

    # For coordinators and the tier

    def read_committed_batches(self, from_offset: int | None = None) -> Iterator[memoryview]:
        """Whole batches from the local start (or `from_offset`) to the high watermark. Iterate in a helper thread."""
        start = self.log.local_log_start_offset if from_offset is None else from_offset
        end = self.high_watermark
        return self.log.batches(start, end)

    def tiered_to(self, offset: int) -> None:
        """The object store is confirmed to hold everything below `offset`."""
        if offset > self.tiered_end:
            self.tiered_end = offset
            # Also where nothing is appended any more: their copies may go.
            for followed in self.followed_by:
                followed.has_news()

    def raise_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for every reader (DeleteRecords, retention)."""
        self.log.raise_log_start(offset)
        self.wake()
        self.wake()
