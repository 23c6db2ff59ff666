"""What a broker's logs need now and then: flushes, checkpoints, retention, rolls, and files whose time has come.

The loop only decides; files are written, flushed and unlinked in a helper thread, one job of a kind at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig, TopicConfig
from appliance.base.config_definitions_topic import MAX_LONG
from appliance.base.errors import KafkaError
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.log.damage import DamagedRange, damaged_ranges
from appliance.log.errors import LogWriteFailed
from appliance.log.flush import Flush
from appliance.log.log_manager import LogManager, parse_folder_name

_log = logging.getLogger(__name__)

FLUSH_LOOK_INTERVAL_MS = 1_000
"""How often logs are asked whether they want a flush (`log.flush.scheduler.interval.ms`, if that is shorter)."""
UNLINK_INTERVAL_MS = 1_000
DAMAGE_INTERVAL_MS = 500
SPACE_INTERVAL_MS = 1_000
WRITEBACK_INTERVAL_MS = 50
"""How often the kernel is told of pages to write early: at 1 GB/s, 50 MB gather."""
FLUSHES_PER_ROUND_MAX = 100
"""Logs that are flushed in one round; the others have their turn in the next."""
FLUSH_LOOKS_MIN = 100
FLUSH_ROUND_LOOKS = 60
"""Who is asked each time whether it wants a flush: a log of a topic that has `flush.ms` or `flush.messages`, and one
that has rolled. Of the others a sixtieth, and at least a hundred."""
SELDOM_FLUSHED_MS = 3_600_000
"""With a `flush.ms` from here on, some seconds more or less do not matter."""
PARTITIONS_PER_SLICE = 500
"""So many are looked at before the loop has its turn again."""


class LogCare:
    """Runs on the loop's timers. `start` once, `close` before the logs close."""

    def __init__(
        self,
        partitions: PartitionHost,
        logs: LogManager,
        config: BrokerConfig,
        clock: Clock,
        background: Background,
    ) -> None:
        self._partitions = partitions
        self._logs = logs
        self._config = config
        self._clock = clock
        self._background = background
        self._busy: set[str] = set()
        self._flush_round: deque[HostedPartition] = deque()
        self._flush_looks = FLUSH_LOOKS_MIN
        self._rolled: dict[HostedPartition, None] = {}
        """Of these a closed segment waits for its flush."""
        self._closed = False

    def start(self) -> None:
        config = self._config
        flush_ms = min(FLUSH_LOOK_INTERVAL_MS, config.get("log.flush.scheduler.interval.ms"))
        self._every(flush_ms, self._flush_due)
        self._every(config.get("replica.high.watermark.checkpoint.interval.ms"), self._checkpoint)
        self._every(config.get("log.retention.check.interval.ms"), self._retain)
        self._every(config.get("producer.id.expiration.check.interval.ms"), self._expire_producers)
        self._every(UNLINK_INTERVAL_MS, self._unlink)
        self._every(SPACE_INTERVAL_MS, self._look_at_space)
        self._every(WRITEBACK_INTERVAL_MS, self._write_back)
        self._every(DAMAGE_INTERVAL_MS, self._look_at_damage)

    def close(self) -> None:
        self._closed = True

    def _every(self, interval_ms: int, work: Callable[[], None]) -> None:
        def fire() -> None:
            if self._closed:
                return
            self._background.schedule(interval_ms, fire)
            work()

        self._background.schedule(interval_ms, fire)

    def _once_at_a_time(self, kind: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if kind in self._busy:
            return
        self._busy.add(kind)

        def finished(result: Any) -> None:
            self._busy.discard(kind)
            done(result)

        self._background.run(work, finished)

    def _in_slices(self, work: Callable[[HostedPartition], None], left: deque[HostedPartition] | None = None) -> None:
        """Do `work` with every partition that is still here when its turn comes."""
        waiting = deque(self._partitions) if left is None else left
        for _ in range(min(PARTITIONS_PER_SLICE, len(waiting))):
            hosted = waiting.popleft()
            if self._is_here(hosted):
                work(hosted)
        if waiting and not self._closed:
            self._background.schedule(1, lambda: self._in_slices(work, waiting))

    def _is_here(self, hosted: HostedPartition) -> bool:
        return self._partitions.get_by_id(hosted.topic_id, hosted.partition) is hosted

    # Flushes and checkpoints

    def _flush_due(self) -> None:
        if "flush" in self._busy:
            return
        now_ms = self._clock.now_ms()
        prepared: list[tuple[HostedPartition, Flush]] = []
        for hosted in self._whose_turn_it_is():
            if len(prepared) == FLUSHES_PER_ROUND_MAX:
                break
            if hosted.dirty or hosted.offline or hosted.cutting or hosted.acks_wait_for_flush:
                continue
            if hosted.write_refusal:
                # A flush stores indexes, for which there is no room.
                continue
            if not hosted.log.flush_due(now_ms):
                self._rolled.pop(hosted, None)
                continue
            try:
                # The active segment is flushed only where the topic asks for it; closed ones always, once.
                unflushed = hosted.log.log_end_offset - hosted.log.recovery_point
                wants_all = unflushed >= hosted.config.flush_messages or hosted.config.flush_ms < now_ms
                flush = hosted.log.prepare_flush(include_active=wants_all)
            except LogWriteFailed as error:
                # Its directory alone is full or offline from here on.
                self._partitions.write_failed(error)
                continue
            if flush is not None:
                prepared.append((hosted, flush))
        if prepared:
            self._once_at_a_time("flush", lambda: _run_flushes(prepared), self._flushed)

    def _whose_turn_it_is(self) -> Iterator[HostedPartition]:
        for topic in list(self._partitions.by_id.values()):
            if _asks_for_flushes(next(iter(topic.partitions.values())).config):
                yield from list(topic.partitions.values())
        self._note_rolled()
        for hosted in list(self._rolled):
            if self._is_here(hosted):
                yield hosted
            else:
                del self._rolled[hosted]
        if not self._flush_round:
            self._flush_round.extend(self._partitions)
            self._flush_looks = max(FLUSH_LOOKS_MIN, len(self._flush_round) // FLUSH_ROUND_LOOKS)
        for _ in range(min(self._flush_looks, len(self._flush_round))):
            hosted = self._flush_round.popleft()
            if hosted not in self._rolled and self._is_here(hosted) and not _asks_for_flushes(hosted.config):
                yield hosted

    def _note_rolled(self) -> None:
        rolled = self._logs.files.rolled
        for _ in range(len(rolled)):
            folder = rolled.popleft()
            at = parse_folder_name(folder.name)
            hosted = self._partitions.get(*at) if at is not None else None
            if hosted is None:
                # Still being opened, or gone: if it comes, its turn does too.
                continue
            if hosted.log.directory == folder:
                self._rolled[hosted] = None

    def _flushed(self, results: list[tuple[HostedPartition, Flush, OSError | None]] | Exception) -> None:
        if isinstance(results, Exception):
            _log.error("logs could not be flushed: %s", results)
            return
        for hosted, flush, error in results:
            if error is None:
                hosted.log.flushed(flush)
            else:
                self._partitions.write_failed(hosted.log.flush_failed(flush, error))

    def _checkpoint(self) -> None:
        if "checkpoint" in self._busy:
            return
        write = self._logs.checkpoint(self._partitions.high_watermarks())

        def done(result: list[LogWriteFailed] | Exception) -> None:
            if isinstance(result, Exception):
                _log.error("the checkpoints could not be written: %s", result)
                return
            for error in result:
                self._partitions.write_failed(error)

        self._once_at_a_time("checkpoint", write, done)

    # Retention

    def _retain(self) -> None:
        now_ms = self._clock.now_ms()

        def look(hosted: HostedPartition) -> None:
            if not hosted.offline and not hosted.dirty and not hosted.cutting:
                try:
                    if hosted.log.roll_due(now_ms):
                        # Nothing is appended any more: the last records, too, can be compacted, tiered and deleted.
                        hosted.log.roll(now_ms)
                    if hosted.is_leader:
                        retain(hosted, now_ms)
                    elif hosted.follower is not None:
                        retain_as_follower(hosted, now_ms)
                except LogWriteFailed as error:
                    self._partitions.write_failed(error)
                except (KafkaError, OSError) as error:
                    _log.error("retention of %s-%d: %s", hosted.topic, hosted.partition, error)

        self._in_slices(look)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()

        def expire(hosted: HostedPartition) -> None:
            if not hosted.cutting:
                hosted.log.expire_producers(now_ms)

        self._in_slices(expire)

    def _unlink(self) -> None:
        if "unlink" in self._busy:
            return
        paths = self._logs.due_deletions(self._clock.now_ms())

        def done(result: Exception | None) -> None:
            if result is not None:
                _log.error("deleted files could not be removed: %s", result)

        if paths:
            self._once_at_a_time("unlink", lambda: self._logs.unlink(paths), done)

    def _write_back(self) -> None:
        if "writeback" in self._busy:
            return
        job = self._logs.files.writeback.take()
        if job is not None:
            self._once_at_a_time("writeback", job.run, lambda _: job.release())

    def _look_at_damage(self) -> None:
        """Find out which offsets are lost in segments that a read has found damaged."""
        book = self._logs.files.damage
        if "damage" in self._busy or not book.has_suspects:
            return
        segments = book.take_suspects()
        for segment in segments:
            segment.retain()

        def done(results: list[list[DamagedRange]] | Exception) -> None:
            for segment in segments:
                segment.release()
            if isinstance(results, Exception):
                _log.error("damaged segments could not be looked into: %s", results)
                return
            for segment, ranges in zip(segments, results, strict=True):
                book.found(segment, ranges)

        self._once_at_a_time("damage", lambda: [damaged_ranges(segment) for segment in segments], done)

    def _look_at_space(self) -> None:
        def done(result: list[LogWriteFailed] | Exception) -> None:
            for error in result if isinstance(result, list) else ():
                self._partitions.write_failed(error)
            self._partitions.writability_changed()

        self._once_at_a_time("space", self._logs.check_space, done)


def retain_as_follower(hosted: HostedPartition, now_ms: int) -> None:
    """Let go of what the leader says is gone; of a tiered topic also what the object store has, by local retention."""
    log = hosted.log
    end = log.log_start_offset
    if hosted.config.remote_storage_enable:
        end = max(end, log.local_retention_deletable(now_ms, hosted.tiered_end))
    if end > log.segments[0].base_offset:
        log.delete_local_segments_below(end)


def retain(hosted: HostedPartition, now_ms: int) -> None:
    """Delete what `retention.ms` and `retention.bytes` no longer keep, in a log whose records lie only here.

    The tier keeps count of its own topics' records, and tells which local copies may go.
    """
    if hosted.config.remote_storage_enable:
        return
    log = hosted.log
    end = log.retention_deletable(now_ms, hosted.high_watermark)
    if end > log.segments[0].base_offset:
        hosted.raise_log_start(end)
        count = log.delete_local_segments_below(end)
        _log.info("%s-%d: %d segments below offset %d deleted by retention", hosted.topic, hosted.partition, count, end)


def _asks_for_flushes(config: TopicConfig) -> bool:
    return config.flush_ms < SELDOM_FLUSHED_MS or config.flush_messages < MAX_LONG


def _run_flushes(
    prepared: list[tuple[HostedPartition, Flush]],
) -> list[tuple[HostedPartition, Flush, OSError | None]]:
    """Runs in a helper thread."""
    results: list[tuple[HostedPartition, Flush, OSError | None]] = []
    for hosted, flush in prepared:
        try:
            flush.run()
            results.append((hosted, flush, None))
        except OSError as error:
            results.append((hosted, flush, error))
    return results
