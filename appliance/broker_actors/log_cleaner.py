"""Compaction on a broker: which log has its turn, a helper process, cleaned segments put in their place.

- Every `log.cleaner.backoff.ms`, and after each round, the logs of compacted topics are looked at; the one with the
  largest dirty share that is due comes first (`log/compaction.py`).
- The helper only adds files. Here, on the loop, these take the place of old segments, a few renames at a time, if the
  log is still as it was; else the round is given up and nothing has happened.
- A log that is damaged is told of and left alone until the next start, the others go on. As in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from appliance.base.background import Background
from appliance.base.clock import Clock
from appliance.base.ids import TopicPartition
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.log_cleaner_worker import Report, Worker
from appliance.broker_actors.partition_host import PartitionHost
from appliance.log.cleaner import CleaningJob
from appliance.log.compacted_log import CleanerLimits
from appliance.log.compaction import Cleanable, filthiest
from appliance.log.errors import LogWriteFailed
from appliance.log.partition_log import PartitionLog
from appliance.log.segment import Segment
from appliance.log.segment_swap import CleanedSegment
from appliance.records.errors import CorruptBatch

_log = logging.getLogger(__name__)

IDLE_MS = 60_000
"""After that long without work the helper processes end."""
DEATHS_MAX = 3
"""A log whose rounds have ended with the death of the helper this often is left alone."""
LEARNED_SEGMENTS_MAX = 200
"""Segments that are asked for their times in one go."""
LOOKS_PER_SLICE = 1_000
"""Partitions that are looked at before the loop has its turn again."""


@dataclass(slots=True)
class CleanerNumbers:
    """What the cleaner has done since the start of the broker."""

    rounds: int = 0
    cleaned_bytes: int = 0
    """Read by rounds that came to their end."""
    written_bytes: int = 0
    max_dirty_percent: int = 0
    """Of the dirtiest log at the last look."""
    max_compaction_delay_ms: int = 0
    max_buffer_percent: int = 0
    """How full the map of keys was in the last round."""
    last_round_ms: int = 0
    """How long the last round took."""
    last_look_ms: int = -1
    """Of the monotonic clock; -1 before the first."""
    uncleanable: dict[TopicPartition, str] = field(default_factory=dict)
    """Logs that are left alone, and why."""


@dataclass(slots=True)
class _Round:
    """A job that a helper works at."""

    hosted: HostedPartition
    log: PartitionLog
    job: CleaningJob
    waiting: deque[Segment]
    """The sources that have not been replaced yet."""
    cleaned: deque[CleanedSegment] = field(default_factory=deque)
    """What the helper has ready."""
    last_report: Report | None = None
    is_replacing: bool = False
    is_lost: bool = False
    """The log has changed, so that what else comes is thrown away."""


class LogCleaner:
    """All methods are called on the loop's thread. `start` once; `close` before the logs close."""

    def __init__(
        self,
        partitions: PartitionHost,
        clock: Clock,
        background: Background,
        new_worker: Callable[[int], Worker],
    ) -> None:
        self.numbers = CleanerNumbers()
        self._partitions = partitions
        self._clock = clock
        self._background = background
        self._new_worker = new_worker
        self._workers: list[Worker] = []
        self._rounds: dict[TopicPartition, _Round] = {}
        self._refused: dict[TopicPartition, PartitionLog] = {}
        self._deaths: dict[TopicPartition, int] = {}
        self._looking = False
        self._learning = False
        self._idle_since_ms = 0
        self._closed = False

    def start(self) -> None:
        self._idle_since_ms = self._clock.monotonic_ms()
        self._background.schedule(self._backoff_ms, self._fire)

    def close(self) -> None:
        self._closed = True
        for worker in self._workers:
            worker.close()

    def is_cleaning(self, topic_partition: TopicPartition) -> bool:
        """Whether a round of this log is under way."""
        return topic_partition in self._rounds

    @property
    def time_since_last_run_ms(self) -> int:
        """Since logs were last looked at; -1 before the first time."""
        last_ms = self.numbers.last_look_ms
        return -1 if last_ms < 0 else self._clock.monotonic_ms() - last_ms

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """Logs that are left alone until the next start, and why."""
        return self.numbers.uncleanable

    @property
    def refused_logs(self) -> list[PartitionLog]:
        """Those that are left alone."""
        return list(self._refused.values())

    @property
    def _backoff_ms(self) -> int:
        return max(1, int(self._partitions.config.get("log.cleaner.backoff.ms")))

    def _fire(self) -> None:
        if self._closed:
            return
        self._background.schedule(self._backoff_ms, self._fire)
        idle_ms = self._clock.monotonic_ms() - self._idle_since_ms
        if not self._rounds and idle_ms >= IDLE_MS:
            for worker in self._workers:
                worker.rest()
        self._look()

    # Whose turn it is

    def _free_worker(self) -> Worker | None:
        threads = int(self._partitions.config.get("log.cleaner.threads"))
        while len(self._workers) < threads:
            self._workers.append(self._new_worker(len(self._workers)))
        return next((worker for worker in self._workers[:threads] if not worker.is_busy), None)

    def _look(self) -> None:
        """Look at every compacted log, some at a time, and begin the rounds that are due."""
        if self._closed or self._looking or not self._partitions.config.get("log.cleaner.enable"):
            return
        self._looking = True
        self._look_on(deque(self._partitions), [], [])

    def _look_on(
        self,
        left: deque[HostedPartition],
        found: list[tuple[HostedPartition, Cleanable, float]],
        unlearned: list[Segment],
    ) -> None:
        if self._closed:
            return
        now_ms = self._clock.now_ms()
        for _ in range(min(LOOKS_PER_SLICE, len(left))):
            hosted = left.popleft()
            if not hosted.config.is_compacted or not self._may_be_cleaned(hosted):
                continue
            unknown = hosted.log.unlearned_segments()
            if unknown:
                unlearned += unknown[: max(0, LEARNED_SEGMENTS_MAX - len(unlearned))]
                continue
            part = hosted.log.cleanable_part(_cleanable_end(hosted), now_ms)
            found.append((hosted, part, hosted.config.min_cleanable_dirty_ratio))
        if left:
            self._background.schedule(1, lambda: self._look_on(left, found, unlearned))
            return
        self._looking = False
        numbers = self.numbers
        numbers.last_look_ms = self._clock.monotonic_ms()
        numbers.max_dirty_percent = int(100 * max((part.ratio for _, part, _ in found), default=0.0))
        numbers.max_compaction_delay_ms = max((part.delay_ms for _, part, _ in found), default=0)
        self._begin_due(found)
        self._learn(unlearned)

    def _may_be_cleaned(self, hosted: HostedPartition) -> bool:
        topic_partition = hosted.topic_partition
        if self._refused.get(topic_partition, hosted.log) is not hosted.log:
            # Another log of that name.
            self._allow(topic_partition)
        return (
            not hosted.offline
            and not hosted.recovering
            and not hosted.log.is_moving
            and topic_partition not in self._rounds
            and topic_partition not in self._refused
        )

    def _learn(self, segments: list[Segment]) -> None:
        """Ask segments for their times, in a helper thread; then look again."""
        if not segments or self._learning:
            return
        self._learning = True
        for segment in segments:
            segment.retain()

        def learn() -> None:
            for segment in segments:
                segment.learn_times()

        def done(result: Exception | None) -> None:
            self._learning = False
            for segment in segments:
                segment.release()
            if result is None:
                self._look()
            else:
                _log.warning("the times of segments could not be read: %s", result)

        self._background.run(learn, done)

    def _begin_due(self, found: list[tuple[HostedPartition, Cleanable, float]]) -> None:
        while (worker := self._free_worker()) is not None:
            chosen = filthiest(found)
            if chosen is None:
                return
            hosted, part = chosen
            found = [entry for entry in found if entry[0] is not hosted]
            self._begin(worker, hosted, part)

    def _begin(self, worker: Worker, hosted: HostedPartition, part: Cleanable) -> None:
        config = self._partitions.config
        threads = max(1, int(config.get("log.cleaner.threads")))
        limits = CleanerLimits(
            map_bytes=config.get("log.cleaner.dedupe.buffer.size") // threads,
            max_bytes_per_second=max(1.0, config.get("log.cleaner.io.max.bytes.per.second") / threads),
        )
        try:
            job, sources = hosted.log.cleaning_job(part, limits, self._clock.now_ms())
        except (CorruptBatch, OSError) as error:
            self._refuse(hosted, str(error))
            return
        round_ = _Round(hosted, hosted.log, job, deque(sources))
        self._rounds[hosted.topic_partition] = round_
        _log.debug("%s: cleaning from offset %d on", hosted.topic_partition, part.first_dirty_offset)
        worker.clean(job, partial(self._report, round_))

    # What comes of it

    def _report(self, round_: _Round, report: Report) -> None:
        if self._closed:
            return
        if "cleaned" in report:
            round_.cleaned.append(CleanedSegment(**report["cleaned"]))
        else:
            round_.last_report = report
        self._next_replacement(round_)

    def _is_here(self, round_: _Round) -> bool:
        """Whether the log is still this broker's, and in service."""
        hosted = round_.hosted
        present = self._partitions.get_by_id(hosted.topic_id, hosted.partition)
        return present is hosted and hosted.log is round_.log and not hosted.offline

    def _next_replacement(self, round_: _Round) -> None:
        """Put the cleaned segments in their place one after the other, then end the round."""
        if self._closed or round_.is_replacing:
            return
        if round_.cleaned:
            self._replace(round_, round_.cleaned.popleft())
        elif round_.last_report is not None:
            self._end(round_, round_.last_report)

    def _replace(self, round_: _Round, cleaned: CleanedSegment) -> None:
        sources = [round_.waiting.popleft() for _ in cleaned.sources]
        log = round_.log
        replacement = log.replacement(cleaned, sources)
        round_.is_replacing = True

        def go_on() -> None:
            round_.is_replacing = False
            self._next_replacement(round_)

        def prepared(result: Exception | None) -> None:
            if isinstance(result, Exception):
                round_.is_lost = True
                if self._is_here(round_):
                    _log.warning("%s: a cleaned segment could not be put in place: %s", log.directory, result)
            elif self._is_here(round_) and not round_.is_lost and log.replace(replacement):
                self._background.run(lambda: replacement.finish(self._clock.now_ms()), finished)
                return
            elif self._is_here(round_):
                # What retention has deleted need not be replaced.
                round_.is_lost = round_.is_lost or sources[-1].base_offset >= log.segments[0].base_offset
            self._background.run(replacement.discard, lambda _: go_on())

        def finished(result: Exception | None) -> None:
            if isinstance(result, Exception):
                round_.is_lost = True
                if self._is_here(round_):
                    error = result if isinstance(result, OSError) else OSError(str(result))
                    self._partitions.write_failed(
                        LogWriteFailed(f"replacing segments of {log.directory}", error, log.directory, cut_back=False)
                    )
            else:
                log.replaced(replacement)
            go_on()

        self._background.run(replacement.prepare, prepared)

    def _end(self, round_: _Round, report: Report) -> None:
        self._idle_since_ms = self._clock.monotonic_ms()
        if "done" in report:
            self._done(round_, report)
            return
        topic_partition = round_.hosted.topic_partition
        del self._rounds[topic_partition]
        if not self._is_here(round_):
            return
        if report["is_damage"] and not round_.log.was_cut_meanwhile:
            self._refuse(round_.hosted, report["failed"])
        elif report.get("has_died"):
            self._deaths[topic_partition] = deaths = self._deaths.get(topic_partition, 0) + 1
            if deaths >= DEATHS_MAX:
                self._refuse(round_.hosted, f"{deaths} times {report['failed']}")
        else:
            _log.warning("%s could not be cleaned, it has another turn later: %s", topic_partition, report["failed"])

    def _done(self, round_: _Round, report: Report) -> None:
        """All is in its place: make that durable, then the next round may begin above it."""
        numbers = self.numbers
        stats = report["stats"]
        numbers.rounds += 1
        numbers.cleaned_bytes += stats["bytes_read"]
        numbers.written_bytes += stats["bytes_written"]
        numbers.max_buffer_percent = 100 * stats["map_keys"] // max(1, stats["map_keys_max"])
        numbers.last_round_ms = report["took_ms"]
        topic_partition = round_.hosted.topic_partition

        def durable(result: Exception | None) -> None:
            self._rounds.pop(topic_partition, None)
            if result is None and not round_.is_lost and self._is_here(round_):
                round_.log.cleaned_to(report["done"])
                self._deaths.pop(topic_partition, None)
                _log.info(
                    "%s: cleaned to offset %d in %d ms: %d bytes became %d",
                    topic_partition,
                    report["done"],
                    report["took_ms"],
                    sum(segment.size_bytes for segment in round_.job.segments),
                    stats["bytes_written"],
                )
            self._look()

        self._background.run(round_.log.sync_directory, durable)

    def _refuse(self, hosted: HostedPartition, reason: str) -> None:
        _log.error("%s is not compacted any more until the next start: %s", hosted.topic_partition, reason)
        self._refused[hosted.topic_partition] = hosted.log
        self.numbers.uncleanable[hosted.topic_partition] = reason

    def mended(self, hosted: HostedPartition) -> None:
        """Its log was damaged, and is not any more."""
        self._allow(hosted.topic_partition)

    def _allow(self, topic_partition: TopicPartition) -> None:
        self._refused.pop(topic_partition, None)
        self.numbers.uncleanable.pop(topic_partition, None)
        self._deaths.pop(topic_partition, None)


def _cleanable_end(hosted: HostedPartition) -> int:
    """Where a round must end: of a tiered log only what the tier has is compacted.

    So a record that a newer one has replaced goes only when the tier has the newer one, and what goes up was never
    touched before: the tier cannot have an old value whose tombstone is gone already.
    """
    stable_offset = hosted.last_stable_offset
    return min(stable_offset, hosted.tiered_end) if hosted.config.remote_storage_enable else stable_offset
