"""What compaction asks of a log: how far it has been cleaned, and a cleaned segment in the place of old ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from appliance.base.clock import Clock
from appliance.log.appender import Appender
from appliance.log.cleaner import CleaningJob
from appliance.log.compaction import Cleanable, SourceSegment, cleanable_part
from appliance.log.compaction_filter import LastRecord
from appliance.log.open_files import Reaper
from appliance.log.producer_recovery import SNAPSHOT_SUFFIX
from appliance.log.replacement import Replacement
from appliance.log.segment import Segment, file_stem
from appliance.log.segment_swap import CleanedSegment

logger = logging.getLogger(__name__)

NO_LIMIT_MS = 2**63 - 1


class CleanerLimits(NamedTuple):
    """What one round may take."""

    map_bytes: int
    max_bytes_per_second: float


class CompactedLog(Appender):
    """A log whose closed segments can be replaced. `PartitionLog` is the whole."""

    __slots__ = (
        "_clock",
        "_cuts",
        "_cuts_before_cleaning",
        "_is_settled",
        "_reaper",
        "_replacing",
        "cleaned_offset",
        "log_start_offset",
        "recovery_point",
        "stored_recovery_point",
    )

    _clock: Clock
    _cuts: int
    """How often the log was cut."""
    _cuts_before_cleaning: int
    _is_settled: bool
    """Whether the last round of this process came to its end, and none has begun since."""
    _replacing: Replacement | None
    _reaper: Reaper
    log_start_offset: int
    recovery_point: int
    cleaned_offset: int
    """Up to where the last round of cleaning went; -1 if there was none."""
    stored_recovery_point: int
    """The recovery point as a start would find it. Only what lies below is cleaned: then no start takes the offsets
    that compaction has left out for lost ones."""

    def recovery_point_stored(self, offset: int) -> None:
        """The checkpoint file says this now. Called in the thread that wrote it; a cut meanwhile counts."""
        self.stored_recovery_point = min(offset, self.recovery_point)

    @property
    def cleanable_segments(self) -> list[Segment]:
        """Closed and durable ones, oldest first."""
        durable = min(self.recovery_point, self.stored_recovery_point)
        found: list[Segment] = []
        for segment in self.segments[:-1]:
            if segment.next_offset > durable or segment.has_unstored_indexes:
                break
            found.append(segment)
        return found

    def unlearned_segments(self) -> list[Segment]:
        """Segments whose files must be asked (`learn_times`, in a helper thread) before `cleanable_part` is called."""
        config = self.config
        wanted: list[Segment] = []
        if config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < NO_LIMIT_MS:
            for segment in self.cleanable_segments:
                if segment.next_offset > self.cleaned_offset and not segment.knows_its_times:
                    wanted.append(segment)
        return wanted

    def cleanable_part(self, stable_offset: int, now_ms: int) -> Cleanable:
        """What could be cleaned, were it this log's turn."""
        config = self.config
        return cleanable_part(
            self.cleanable_segments,
            cleaned_offset=self.cleaned_offset,
            log_start_offset=max(self.log_start_offset, self.segments[0].base_offset),
            log_end_offset=self.log_end_offset,
            stable_offset=stable_offset,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            now_ms=now_ms,
        )

    def cleaning_job(self, part: Cleanable, limits: CleanerLimits, now_ms: int) -> tuple[CleaningJob, list[Segment]]:
        """The round for the helper, and the segments that it will read.

        Raises:
            CorruptBatch: a transaction index is damaged.
        """
        config = self.config
        self._cuts_before_cleaning = self._cuts
        self._is_settled = False
        end = part.first_uncleanable_offset
        stored = [segment for segment in self.segments[:-1] if not segment.has_unstored_indexes]
        sources = [segment for segment in self.cleanable_segments if segment.next_offset <= end]
        unstored = [segment for segment in self.segments if segment.is_active or segment.has_unstored_indexes]
        job = CleaningJob(
            directory=self.directory,
            segments=[
                SourceSegment(segment.base_offset, segment.next_offset, segment.size_bytes) for segment in sources
            ],
            later_bases=[segment.base_offset for segment in stored if segment.base_offset >= end],
            first_dirty_offset=part.first_dirty_offset,
            first_uncleanable_offset=end,
            aborted=[entry for segment in unstored for entry in segment.aborted if entry.first_offset < end],
            producers={
                producer_id: LastRecord(batches[-1][3] if batches else -1, epoch)
                for producer_id, (epoch, _, _, _, _, batches) in self.producer_state.copy().items()
                if not batches or batches[-1][3] < end
            },
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            map_bytes=limits.map_bytes,
            max_bytes_per_second=limits.max_bytes_per_second,
            # Of a tiered log the tier may have older records alone: what deletes them must stay as long as they do.
            keep_tombstones=self.segments[0].base_offset > self.log_start_offset,
        )
        return job, sources

    def replacement(self, cleaned: CleanedSegment, sources: list[Segment]) -> Replacement:
        """What has to be done to put a cleaned segment in the place of `sources`; see `replacement.py`."""
        return Replacement(self._disk, self._files, self._reaper, cleaned, sources, self.config.file_delete_delay_ms)

    def replace(self, replacement: Replacement) -> bool:
        """Let readers find a prepared segment instead of the old ones; False if these are not in the log as they were.

        Slices on their way keep the old files; a reader in a helper thread gets `SegmentGone` and looks again.
        """
        sources = replacement.sources
        first = next((n for n, segment in enumerate(self.segments) if segment is sources[0]), -1)
        present = self.segments[first : first + len(sources)] if first >= 0 else []
        if len(present) != len(sources) or any(old is not new for old, new in zip(present, sources, strict=True)):
            return False
        if self.segments[-1] is sources[-1] or self._replacing is not None:
            return False
        for old in sources:
            old.condemn()
            if old is not sources[0]:
                self._pending_snapshots.pop(old.base_offset, None)
        self.segments[first : first + len(sources)] = [replacement.segment]
        replacement.is_in_force = True
        self._replacing = replacement
        return True

    def replaced(self, replacement: Replacement) -> None:
        """The files have their names."""
        if self._replacing is replacement:
            self._replacing = None
            replacement.segment.has_its_names()

    def _settle(self) -> None:
        """Give the newest segments their names at once, before the files of the log are changed. Raises OSError."""
        replacement = self._replacing
        if replacement is not None:
            replacement.finish(self._clock.now_ms())
            self.replaced(replacement)

    def sync_directory(self) -> None:
        """Make what was put in place durable. Blocks; any thread may do it. Raises OSError."""
        self._disk.fsync_directory(self.directory)

    def cleaned_to(self, offset: int) -> None:
        """All segments of the round are in their place, durably."""
        if not self.was_cut_meanwhile:
            self.cleaned_offset = offset
            self._is_settled = True

    @property
    def compacted_to(self) -> int:
        """Up to where a round of this process has gone, with all of it in its place; -1 while that is not so."""
        return self.cleaned_offset if self._is_settled and not self.was_cut_meanwhile else -1

    @property
    def was_cut_meanwhile(self) -> bool:
        """Whether the log was cut since the last job was made: what looks like damage in a round may be that."""
        return self._cuts != self._cuts_before_cleaning

    def _condemn(self, segment: Segment, *others: Path) -> None:
        """Let the files of a segment go, after file.delete.delay.ms."""
        due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
        segment.condemn()
        for path in (*segment.paths, *others):
            self._reaper.condemn(path, due_ms)

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
