"""The log of one partition in `DIR/<topic>-<partition>/`, in Apache Kafka's own files.

`appender.py` has the path of every batch; here is what happens now and then: open, read, retain, move, close.

One thread owns a log. A helper thread may run a prepared `Flush`, and may read from segments that are retained.

Memory leads, files follow: indexes, leader epochs and producer snapshots on disk need to be right only below the
recovery point, because a start reads everything above it again. So nothing but the records is written per append.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.config import TopicConfig
from appliance.base.disk import Disk, Pages
from appliance.base.errors import invariant
from appliance.base.ids import TopicPartition
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.log import reading
from appliance.log.checkpoints import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    CorruptCheckpoint,
    read_epochs,
    read_file,
    read_partition_metadata,
    replace_file,
    write_partition_metadata,
)
from appliance.log.damage import DamagedRange
from appliance.log.errors import OffsetOutOfRange
from appliance.log.flushed_log import FlushedLog
from appliance.log.indexes import AbortedTransaction
from appliance.log.log_slice import LogSlice
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.producer_recovery import recover_producers
from appliance.log.producer_snapshot import snapshot_to_bytes
from appliance.log.producer_state import PRODUCERS_MAX, snapshot_of
from appliance.log.reading import OffsetAndTimestamp
from appliance.log.recovery import (
    list_segments,
    recover_epochs,
    recover_segments,
)
from appliance.log.retention import expired_end
from appliance.log.segment import Segment

logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS = 86_400_000


class PartitionLog(FlushedLog):
    """The log of one partition. Opening it recovers what lies above the recovery point.

    Offsets: `log_start_offset` ≤ `local_log_start_offset` ≤ `recovery_point` ≤ `log_end_offset`; what lies between the
    first two is in the tier only.
    """

    __slots__ = (
        "_clean_end",
        "_producer_id_expiration_ms",
        "holds_flushes",
        "is_moving",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        directory: Path,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        clock: Clock,
        disk: Disk,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = -1,
        clean: bool = False,
        files: OpenFiles | None = None,
        reaper: Reaper | None = None,
        randomness: Randomness | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        producers_max: int = PRODUCERS_MAX,
        stored_topic_id: uuid.UUID | None = None,
    ) -> None:
        """Open or create the log.

        Args:
            recovery_point: what lies below was flushed (from the checkpoint).
            log_start_offset: from the checkpoint; 0 if it is not in it.
            cleaned_offset: how far it was compacted (from the checkpoint); -1 if it is not in it.
            clean: the broker was shut down cleanly; nothing needs to be checked.
            stored_topic_id: what partition.metadata says, if it was read already.

        Raises:
            OSError: the disk does not do what a log needs.
            CorruptCheckpoint: partition.metadata is damaged, or names another topic id.
        """
        files = OpenFiles(disk) if files is None else files
        super().__init__(directory, config, disk, files, randomness or SystemRandomness())
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_start_offset = log_start_offset
        self.recovery_point = self.stored_recovery_point = recovery_point
        self.cleaned_offset = cleaned_offset
        self._clock = clock
        self._reaper = reaper or Reaper(disk)
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self.producer_state.limit = producers_max
        self._cuts = self._cuts_before_cleaning = 0
        self._replacing = None
        self._is_settled = False
        self._folder_created = False
        self._clean_end = -1
        """Where the last clean end left the log, with a producer snapshot there; -1 if that is not known."""
        self._flushed_ms = clock.now_ms()
        self.flushes_under_way = 0
        self.holds_flushes = False
        """It is about to move to another data directory: no acknowledgement may come from a flush in this one."""
        self.is_moving = False
        """On its way there: what is copied already must not be compacted here."""
        self.before_cut = None
        self._open(clean, stored_topic_id)

    def _open(self, clean: bool, stored_id: uuid.UUID | None) -> None:
        disk, now_ms = self._disk, self._flushed_ms
        if stored_id is None and not disk.exists(self.directory):
            # Nothing has been promised of it. The first flush makes the folder durable with what is in it, so that
            # thousands of partitions are created without a flush for each.
            disk.mkdir(self.directory)
            self._folder_created = True
            write_partition_metadata(disk, self.directory / PARTITION_METADATA_FILE, self.topic_id, durable=False)
            self._begin_at(self.log_start_offset)
            # The first write opens it again: thousands of logs may be made at a time.
            self.segments[-1].close()
            return
        if stored_id is None:
            stored_id = read_partition_metadata(disk, self.directory / PARTITION_METADATA_FILE)
        if stored_id is None:
            self._folder_created = True
            write_partition_metadata(disk, self.directory / PARTITION_METADATA_FILE, self.topic_id, durable=False)
        elif stored_id != self.topic_id:
            raise CorruptCheckpoint(f"{self.directory}: topic id {stored_id}, expected {self.topic_id}")
        dense = not self.config.is_compacted and self.cleaned_offset < 0
        segments, names = list_segments(
            self.directory, self._files, self.config.index_interval_bytes, disk.listdir(self.directory), dense=dense
        )
        if not segments:
            self._begin_at(self.log_start_offset)
            self.segments[-1].close()
            return
        found = recover_segments(
            segments,
            self.recovery_point,
            clean=clean,
            dense=not self.config.is_compacted,
            now_ms=now_ms,
            cleaned_offset=self.cleaned_offset,
            names=names,
        )
        self.segments = found.segments
        recover_producers(self.directory, found, self.producer_state, now_ms, names)
        self._pending_snapshots = found.snapshots
        self.producer_state.expire(now_ms, self._producer_id_expiration_ms)
        stored_epochs = None
        try:
            if LEADER_EPOCH_FILE in names:
                stored_epochs = read_epochs(disk, f"{self.directory}/{LEADER_EPOCH_FILE}")
        except CorruptCheckpoint as error:
            logger.warning("%s; the leader epochs are read from the batches", error)
        recover_epochs(stored_epochs, found, self.leader_epochs)
        for segment in self.segments:
            segment.close()
        if found.is_damaged:
            self._add_segment(found.end_offset)
        self._set_end(found.end_offset)
        if not self.config.remote_storage_enable:
            self.log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        if self.log_start_offset > self.log_end_offset:
            logger.warning(
                "%s: the log ends at %d, below its start %d; it begins there anew",
                self.directory.name,
                self.log_end_offset,
                self.log_start_offset,
            )
            self.truncate_fully_and_start_at(self.log_start_offset)
        self.leader_epochs.truncate_from_start(self.log_start_offset)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        if not clean and self.recovery_point <= self.segments[0].base_offset:
            # As far as anybody knows it was never flushed.
            self._folder_created = True
        if clean and self.recovery_point == found.end_offset and self._snapshot_path(found.end_offset).name in names:
            self._clean_end = found.end_offset
        if self.cleaned_offset > self.log_end_offset:
            # It is of an earlier log of that name.
            self.cleaned_offset = -1

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    def roll_due(self, now_ms: int) -> bool:
        """Whether the active segment should be rolled though nothing is appended: segment.ms, or tiering.max.lag.ms."""
        active = self.segments[-1]
        if active.size_bytes == 0:
            return False
        age_ms = now_ms - active.first_append_ms
        limit_ms = self.config.roll_ms - self._jitter_ms
        if self.config.remote_storage_enable:
            limit_ms = min(limit_ms, self.config.tiering_max_lag_ms)
        return age_ms >= limit_ms

    def closed_segments(self) -> list[Segment]:
        """All but the active one, oldest first, as far as their index files are complete."""
        closed: list[Segment] = []
        for segment in self.segments[:-1]:
            try:
                segment.finish_indexes()
            except OSError as error:
                logger.warning("%s: its indexes could not be stored yet: %s", segment.path, error)
                break
            closed.append(segment)
        return closed

    @property
    def active_segment(self) -> Segment:
        return self.segments[-1]

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that can be read from this disk."""
        return max(self.log_start_offset, self.segments[0].base_offset)

    @property
    def damage(self) -> list[DamagedRange]:
        """Offsets that are known to be unreadable."""
        return [each for segment in self.segments if segment.is_damaged for each in segment.damage]

    @property
    def size_bytes(self) -> int:
        """Of all .log files."""
        return sum(segment.size_bytes for segment in self.segments)

    def update_config(self, config: TopicConfig) -> None:
        """Take over changed topic configs; they count from the next batch on."""
        if config is self.config:
            return
        self.config = config
        if not self._staged:
            self._set_end(self.log_end_offset)

    # Reading

    def read(
        self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True, pages: Pages | None = None
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on, none at or above `max_offset`, from one segment.

        None when nothing is there yet. Retain the slice before the loop goes on.

        Raises:
            OffsetOutOfRange: below the local log start, or above the log end.
            CorruptBatch: damage on the way.
            WouldWait: with `pages`, if the disk has to be read to find the batches.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.local_log_start_offset:
            raise OffsetOutOfRange(offset, self.local_log_start_offset, end_offset)
        if offset >= max_offset:
            return None
        end = max_offset if max_offset < end_offset else end_offset
        return reading.read_slice(self.segments, offset, max_bytes, end, min_one_batch, pages)

    def batches(self, from_offset: int, end_offset: int | None = None) -> Iterator[memoryview]:
        """Whole batches from the one that holds `from_offset` on, crc checked, up to the present log end.

        Raises:
            OffsetOutOfRange, CorruptBatch: while iterating.
        """
        if not self.local_log_start_offset <= from_offset <= self.log_end_offset:
            raise OffsetOutOfRange(from_offset, self.local_log_start_offset, self.log_end_offset)
        limit = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        return reading.iterate_batches(self.segments, from_offset, limit)

    def offset_for_timestamp(self, timestamp: int, end_offset: int | None = None) -> OffsetAndTimestamp | None:
        """The first local record below `end_offset` with this timestamp or a later one. Reads and unpacks batches.

        Raises:
            CorruptBatch: damage on the way.
        """
        limit = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        return reading.offset_for_timestamp(self.segments, timestamp, self.local_log_start_offset, limit)

    def offset_of_max_timestamp(self, end_offset: int | None = None) -> OffsetAndTimestamp | None:
        """The first local record below `end_offset` with the largest timestamp."""
        limit = self.log_end_offset if end_offset is None else min(end_offset, self.log_end_offset)
        return reading.offset_of_max_timestamp(self.segments, limit)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction is decided; the high watermark when none is open."""
        unstable = self.producer_state.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Every aborted transaction that overlaps [start_offset, end_offset), in marker order.

        Raises:
            CorruptBatch: a transaction index is damaged.
        """
        found: list[AbortedTransaction] = []
        for segment in self.segments[reading.segment_at(self.segments, start_offset) :]:
            for transaction in segment.aborted:
                if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= end_offset:
                    return found
        return found

    # Deleting

    def delete_local_segments_below(self, offset: int) -> int:
        """Let whole segments go that end at or below `offset`; their files go after file.delete.delay.ms.

        When all that is in the log goes, the active segment is rolled first. Without tiering the log start follows.
        Returns how many segments went. Raises LogWriteFailed, OSError.
        """
        if offset >= self.log_end_offset:
            self.roll(self._clock.now_ms())
        self._settle()
        count = 0
        while len(self.segments) > 1 and self.segments[0].next_offset <= offset:
            segment = self.segments.pop(0)
            self._keep_producers_at(segment.next_offset)
            segment.condemn()
            companions = [*segment.paths[1:], self._snapshot_path(segment.base_offset)]
            due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
            self._reaper.condemn(segment.path, due_ms, companions)
            self._pending_snapshots.pop(segment.base_offset, None)
            count += 1
        if not self.config.remote_storage_enable and self.segments[0].base_offset > self.log_start_offset:
            self.raise_log_start(self.segments[0].base_offset)
        return count

    def _keep_producers_at(self, offset: int) -> None:
        """Store the snapshot where the log will begin, or a crash before the next flush would forget them."""
        producers = self._pending_snapshots.get(offset)
        if producers:
            content = snapshot_to_bytes(snapshot_of(producers))
            try:
                # A flush may be writing the same file in its thread.
                path = self._snapshot_path(offset)
                replace_file(self._disk, path, content, durable=False, temporary_suffix=".kept.tmp")
            except OSError as error:
                logger.warning("%s: no producer snapshot at %d yet: %s", self.directory.name, offset, error)

    def raise_log_start(self, offset: int) -> None:
        """What lies below `offset` is gone for readers (retention, DeleteRecords). Never goes back.

        Raises:
            OffsetOutOfRange: above the log end.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def retention_deletable(self, now_ms: int, high_watermark: int | None = None) -> int:
        """The offset below which whole segments are too old or too much by retention.ms and retention.bytes.

        For a log without tiering: then `raise_log_start` and `delete_local_segments_below` it. Nothing at or above the
        high watermark is named.
        """
        limit = self.log_end_offset if high_watermark is None else high_watermark
        config = self.config
        end = self.segments[0].base_offset
        if config.is_deleted_by_retention:
            end = expired_end(
                self.segments,
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                now_ms=now_ms,
                limit=limit,
            )
        elif config.is_compacted:
            return end
        below_start = [segment.next_offset for segment in self.segments if segment.next_offset <= self.log_start_offset]
        return max([end, *below_start])

    def local_retention_deletable(self, now_ms: int, tiered_end: int) -> int:
        """The same by local.retention.ms and local.retention.bytes, for what the tier has confirmed.

        A compacted log stays whole on the disk: compaction needs the older records beside the newer ones.
        """
        config = self.config
        if config.is_compacted:
            return self.segments[0].base_offset
        return expired_end(
            self.segments,
            retention_ms=config.effective_local_retention_ms,
            retention_bytes=config.effective_local_retention_bytes,
            now_ms=now_ms,
            limit=tiered_end,
        )

    # Producers

    def producer_snapshot_at(self, offset: int) -> bytes | None:
        """The content of Kafka's `.snapshot` at a segment's end or the log's; None if none was taken there."""
        if offset == self.log_end_offset and not self._staged:
            return snapshot_to_bytes(snapshot_of(self.producer_state.copy()))
        entries = self._pending_snapshots.get(offset)
        if entries is not None:
            return snapshot_to_bytes(snapshot_of(entries))
        return read_file(self._disk, self._snapshot_path(offset))

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; how many. Costs a look at each."""
        return self.producer_state.expire(now_ms, self._producer_id_expiration_ms)

    # Moving to another data directory

    @property
    def is_being_changed(self) -> bool:
        """Whether a helper thread is at work on its files."""
        return self.flushes_under_way > 0 or self._replacing is not None

    def take_over(self, other: PartitionLog, directory: Path, files: OpenFiles) -> None:
        """Go on in the files of another log that is the same, in a folder that is named `directory` now.

        Slices on their way keep the old files; a reader in a helper thread gets `SegmentGone` and looks again.
        """
        invariant(not self._staged and not self.is_being_changed, f"{self!r} moves while it is at work")
        invariant(other.log_end_offset == self.log_end_offset, f"{other!r} is not {self!r}")
        for old in self.segments:
            old.condemn()
        for segment in other.segments:
            segment.moved(directory, files)
        self.directory = directory
        self.segments[:] = other.segments
        other.segments = []
        self.recovery_point, self.stored_recovery_point = other.recovery_point, other.stored_recovery_point
        self.cleaned_offset = other.cleaned_offset
        self._pending_snapshots = other._pending_snapshots
        self._file_created, self._folder_created = other._file_created, other._folder_created
        self._failed, self._clean_end, self._cuts = False, -1, self._cuts + 1
        self.leader_epochs.unstored = True
        self._set_end(self.log_end_offset)

    @property
    def _is_as_it_was(self) -> bool:
        """Whether its files are still as the last clean end has left them."""
        return (
            self._clean_end == self.recovery_point == self.log_end_offset
            and not (self._cuts or self._file_created or self._folder_created or self.leader_epochs.unstored)
            and not (self._pending_snapshots or any(segment.has_unstored_indexes for segment in self.segments))
        )

    def close(self, clean: bool = True, *, durable: bool = True) -> None:
        """Let the files go. A clean close flushes and takes a producer snapshot, so that the next start reads nothing.

        With `durable` false all is written, and the caller makes it durable before it says that the end was clean.

        Raises:
            LogWriteFailed: the clean close could not be made; recovery will do at the next start.
        """
        invariant(not self._staged, f"{self!r}: a close between stage and write_staged")
        try:
            if clean and not self._failed and not self._is_as_it_was:
                self._settle()
                active = self.segments[-1]
                active.time_index.append_if_later(
                    active.max_timestamp, active.max_timestamp_offset - active.base_offset
                )
                self._pending_snapshots[self.log_end_offset] = self.producer_state.copy()
                self.flush(durable=durable)
        finally:
            for segment in self.segments:
                segment.forget()
