"""Replicas move between the data directories of this broker; the loop only decides, helper threads copy.

`partition/future_replica.py` says what comes next, `log/future_logs.py` does it. The last few records are copied on the
loop, and there a rename lets the new files take over: nobody can append in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.base.ids import TopicPartition
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.log.errors import LogWriteFailed, OffsetOutOfRange
from appliance.log.future_logs import FutureLog, fits_in_a_name
from appliance.log.log_directory import LogDirectory
from appliance.log.log_manager import LogManager
from appliance.log.open_files import SegmentGone
from appliance.log.partition_log import PartitionLog
from appliance.partition.future_replica import BeginAnew, Copy, CutTo, Extent, FutureReplica, Prepare, Wait
from appliance.partition.replication_quota import ReplicationQuota
from appliance.records.errors import CorruptBatch

_log = logging.getLogger(__name__)
T = TypeVar("T")

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LOOK_MS = 100
"""Between looks at a replica that cannot go on now."""
RETRY_MS = 10_000
"""Before one that has failed is tried again."""
FINAL_BYTES = 256 << 10
"""So much may be left to be copied on the loop."""
MOVES_AT_A_TIME = 2
"""The others wait for their turn: they would only take the disks from each other."""
PREFERRED_MAX = 10_000
"""Partitions that are not there yet, of which a directory is remembered."""


@dataclass(slots=True, eq=False)
class _Move:
    """One replica that is to go to another directory."""

    hosted: HostedPartition
    target: LogDirectory
    rules: FutureReplica
    future: FutureLog | None = None
    """None until it is its turn."""
    is_busy: bool = False
    """A helper thread is at work."""
    is_over: bool = False
    due_ms: int = 0
    waiting: list[Callable[[ErrorCode], None]] = field(default_factory=list)
    """Who is to be told when the future log is there."""


class ReplicaMoves:
    """All methods are called on the loop's thread."""

    def __init__(
        self,
        partitions: PartitionHost,
        logs: LogManager,
        clock: Clock,
        background: Background,
        is_cleaning: Callable[[TopicPartition], bool],
    ) -> None:
        self._partitions = partitions
        self._logs = logs
        self._clock = clock
        self._background = background
        self._is_cleaning = is_cleaning
        self._quota = ReplicationQuota()
        self._moves: dict[TopicPartition, _Move] = {}
        self._ending: dict[TopicPartition, _Move] = {}
        """Those that were told to end while a helper thread was at work."""
        self._closed = False
        self._is_looking = False
        self.copied_bytes = 0

    def close(self) -> None:
        self._closed = True

    # What is asked for

    def alter(self, topic_partition: TopicPartition, path: str, done: Callable[[ErrorCode], None]) -> None:
        """Let a replica go to that directory; one that comes later begins there. `done` is called once."""
        refusal = self._refusal(topic_partition, path, done)
        if refusal is not None:
            done(refusal)

    def _refusal(
        self, topic_partition: TopicPartition, path: str, done: Callable[[ErrorCode], None]
    ) -> ErrorCode | None:
        """None when the answer comes once the future log is there."""
        if not fits_in_a_name(topic_partition):
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        target = self._directory(path)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if not target.is_usable:
            return ErrorCode.KAFKA_STORAGE_ERROR
        hosted = self._partitions.get(*topic_partition)
        if hosted is None:
            return self._remember(topic_partition, target)
        if hosted.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        move = self._moves.get(topic_partition)
        if move is not None and move.target is target:
            if move.future is not None:
                return ErrorCode.NONE
            move.waiting.append(done)
            return None
        if move is not None:
            self._end(move)
        if self._source(hosted) is target:
            return ErrorCode.NONE
        if any(not directory.is_usable for directory in self._logs.directories):
            # In one that is away there may be another future log of the same partition.
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._begin(hosted, target).waiting.append(done)
        return None

    def _remember(self, topic_partition: TopicPartition, target: LogDirectory) -> ErrorCode:
        topic, partition = topic_partition
        state = self._partitions.image.topics.get(topic)
        if state is not None and self._partitions.absence_of(topic, partition) is ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.KAFKA_STORAGE_ERROR
        preferred = self._logs.preferred
        if len(preferred) >= PREFERRED_MAX:
            preferred.pop(next(iter(preferred)), None)
        preferred[topic_partition] = target.path
        if state is None or self._partitions.image.partition_by_id(state.topic_id, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _directory(self, path: str) -> LogDirectory | None:
        wanted = Path(path)
        return next((each for each in self._logs.directories if each.path.absolute() == wanted), None)

    def _source(self, hosted: HostedPartition) -> LogDirectory:
        return self._logs.directory_of(hosted.log.directory)

    def opened(self) -> None:
        """Partitions were opened: what an earlier process has begun goes on."""
        for topic_partition, (directory, _) in list(self._logs.futures.found.items()):
            hosted = self._partitions.get(*topic_partition)
            if hosted is None or topic_partition in self._moves:
                continue
            if hosted.offline or self._source(hosted) is directory or not directory.is_usable:
                self._logs.futures.cancel(topic_partition)
            else:
                self._begin(hosted, directory)

    def _begin(self, hosted: HostedPartition, target: LogDirectory) -> _Move:
        _log.info("%r moves to %s", hosted, target.path)
        move = self._moves[hosted.topic_partition] = _Move(hosted, target, FutureReplica(self._quota))
        hosted.log.is_moving = True
        self._look()
        return move

    # What is done

    def _look(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._background.schedule(0, self._look_at_all)

    def _look_at_all(self) -> None:
        self._is_looking = False
        if self._closed:
            return
        now_ms = self._clock.monotonic_ms()
        copying = 0
        for move in list(self._moves.values()):
            copying += move.future is not None
            if not move.is_busy and move.due_ms <= now_ms and copying <= MOVES_AT_A_TIME:
                self._go_on(move, now_ms)
        if self._moves and not self._is_looking:
            self._is_looking = True
            self._background.schedule(LOOK_MS, self._look_at_all)

    def _go_on(self, move: _Move, now_ms: int) -> None:
        hosted = move.hosted
        if self._has_gone(move):
            self._end(move)
            return
        if move.future is None:
            if hosted.topic_partition not in self._ending:
                self._open(move)
            return
        if not self._may_go_on(hosted):
            return
        rate = self._partitions.config.get(RATE)
        future = move.future
        step = move.rules.next_step(_extent(hosted.log), _extent(future.future), rate, now_ms)
        match step:
            case Wait(ms):
                move.due_ms = now_ms + ms
            case Copy(max_bytes):
                wall_ms = self._clock.now_ms()
                self._work(move, lambda: future.copy(max_bytes, wall_ms), lambda size: self._copied(move, size))
            case CutTo(offset):
                self._work(move, lambda: future.cut_to(offset), lambda _: self._soon(move))
            case BeginAnew():
                self._work(move, future.begin_anew, lambda _: self._soon(move))
            case Prepare(hold):
                hosted.log.holds_flushes = hold
                self._work(move, future.prepare, lambda _: self._prepared(move))

    def _may_go_on(self, hosted: HostedPartition) -> bool:
        return not (hosted.cutting or hosted.recovering or self._is_cleaning(hosted.topic_partition))

    def _has_gone(self, move: _Move) -> bool:
        hosted = move.hosted
        present = self._partitions.get_by_id(hosted.topic_id, hosted.partition)
        return present is not hosted or bool(hosted.offline) or not move.target.is_usable

    def _open(self, move: _Move) -> None:
        hosted, futures = move.hosted, self._logs.futures

        def opened(future: FutureLog) -> None:
            move.future = future
            self._answer(move, ErrorCode.NONE)
            self._soon(move)

        self._work(move, lambda: futures.begin(hosted.topic_partition, move.target, hosted.config), opened)

    @staticmethod
    def _answer(move: _Move, error: ErrorCode) -> None:
        waiting, move.waiting = move.waiting, []
        for done in waiting:
            done(error)

    def _work(self, move: _Move, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """In a helper thread; meanwhile nobody else touches the future log."""
        move.is_busy = True
        if move.future is not None:
            move.future.is_busy = True

        def ended(result: T | Exception) -> None:
            move.is_busy = False
            if move.future is not None:
                move.future.is_busy = False
            if self._closed:
                return
            if move.is_over:
                # Told to end while it was at work.
                self._forget(move)
            elif isinstance(result, Exception):
                self._failed(move, result)
            else:
                done(result)

        self._background.run(work, ended)

    def _soon(self, move: _Move) -> None:
        """Go on at once: while others write, what is left to be copied grows with each wait."""
        move.due_ms = 0
        self._background.schedule(0, lambda: self._next(move))

    def _next(self, move: _Move) -> None:
        now_ms = self._clock.monotonic_ms()
        if not (self._closed or move.is_busy or move.is_over) and move.due_ms <= now_ms:
            self._go_on(move, now_ms)

    def _copied(self, move: _Move, size: int) -> None:
        rate = self._partitions.config.get(RATE)
        move.rules.copied(size, rate, self._clock.monotonic_ms())
        self.copied_bytes += size
        self._soon(move)

    def _prepared(self, move: _Move) -> None:
        hosted, future = move.hosted, move.future
        assert future is not None
        move.rules.prepared()
        if self._has_gone(move):
            self._end(move)
            return
        if self._may_go_on(hosted):
            try:
                self._partitions.write_now(hosted)
                if future.lag:
                    future.copy(FINAL_BYTES, self._clock.now_ms())
                if future.may_swap:
                    future.swap()
                    self._swapped(move)
                    return
            except (LogWriteFailed, OSError, CorruptBatch, OffsetOutOfRange) as error:
                self._failed(move, error)
                return
        if future.lag:
            self._soon(move)
        else:
            # Something is at work on the log in use.
            move.due_ms = self._clock.monotonic_ms() + LOOK_MS

    def _swapped(self, move: _Move) -> None:
        hosted = move.hosted
        self._moves.pop(hosted.topic_partition, None)
        _log.info("%r has moved to %s", hosted, move.target.path)
        hosted.write_refusal = self._partitions.directories.refusal_of(hosted.log)
        hosted.reconsider()
        hosted.log.is_moving = False
        move.is_over = True
        self._release(hosted)
        hosted.wake()

    @staticmethod
    def _release(hosted: HostedPartition) -> None:
        log = hosted.log
        if log.holds_flushes:
            log.holds_flushes = False
            if not hosted.offline:
                hosted.written()

    def _failed(self, move: _Move, error: Exception) -> None:
        hosted = move.hosted
        self._release(hosted)
        if self._has_gone(move):
            self._end(move)
            return
        _log.error("%r cannot move to %s now: %s", hosted, move.target.path, error)
        move.due_ms = self._clock.monotonic_ms() + (0 if isinstance(error, SegmentGone) else RETRY_MS)
        self._answer(move, ErrorCode.KAFKA_STORAGE_ERROR)
        if isinstance(error, LogWriteFailed):
            self._partitions.write_failed(error)

    def _end(self, move: _Move) -> None:
        """It stays where it is, or is gone."""
        topic_partition = move.hosted.topic_partition
        self._moves.pop(topic_partition, None)
        move.is_over = True
        move.hosted.log.is_moving = False
        self._answer(move, ErrorCode.KAFKA_STORAGE_ERROR)
        if move.is_busy:
            self._ending[topic_partition] = move
        else:
            self._forget(move)

    def _forget(self, move: _Move) -> None:
        self._ending.pop(move.hosted.topic_partition, None)
        self._release(move.hosted)
        under_way = self._logs.futures.under_way.get(move.hosted.topic_partition)
        if under_way is None or (move.future is not None and under_way is not move.future):
            return
        try:
            self._logs.futures.cancel(move.hosted.topic_partition)
        except OSError as error:
            failed = LogWriteFailed(f"leaving {move.target.path}", error, move.target.path)
            self._partitions.write_failed(failed)


def _extent(log: PartitionLog) -> Extent:
    return Extent(log.segments[0].base_offset, log.log_end_offset, log.leader_epochs.entries)
