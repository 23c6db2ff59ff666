"""The log of one partition in `DIR/<topic>-<partition>/`, in Apache Kafka's own files.

The append path: `stage` stamps a batch and queues it, without a system call; `write_staged` writes all that was queued
with one writev. Everything else (rolls, flushes, retention) happens now and then. One thread owns a log; a helper
thread may only run a prepared `Flush`.

Memory leads, files follow: indexes, leader epochs and producer snapshots on disk need to be right only below the
recovery point, because a start reads everything above it again. So nothing but the records is written per append.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from appliance.base.clock import Clock
from appliance.base.config import TopicConfig
from appliance.base.disk import Disk
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
    write_partition_metadata,
)
from appliance.log.errors import LogWriteFailed, OffsetOutOfRange
from appliance.log.flush import Flush
from appliance.log.indexes import AbortedTransaction, OffsetIndex, TimeIndex
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.producer_snapshot import snapshot_to_bytes
from appliance.log.producer_state import ProducerEntry, ProducerState, snapshot_of
from appliance.log.reading import OffsetAndTimestamp
from appliance.log.recovery import (
    SNAPSHOT_SUFFIX,
    RecoveredLog,
    list_segments,
    recover_epochs,
    recover_producers,
    recover_segments,
    snapshot_offsets,
)
from appliance.log.retention import expired_end
from appliance.log.segment import LogSlice, Segment, file_stem
from appliance.records.batch import HEADER_BYTES, BatchHeader, parse_header
from appliance.records.control import read_marker

logger = logging.getLogger(__name__)

PRODUCER_ID_EXPIRATION_MS = 86_400_000
PIECES_PER_WRITE_MAX = 1024
"""What one writev takes (IOV_MAX)."""
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Index entries hold offsets relative to the segment's base in 31 bits."""
_NEVER = 1 << 62

_pack_stamp = struct.Struct(">qii").pack_into


class _StagedRoll(NamedTuple):
    """A new segment between two staged batches, and what the one before it ends with."""

    pieces_before: int
    following: Segment
    producers: dict[int, ProducerEntry]
    max_timestamp: int
    max_timestamp_offset: int


class PartitionLog:
    """The log of one partition. Opening it recovers what lies above the recovery point.

    Offsets: `log_start_offset` ≤ `local_log_start_offset` ≤ `recovery_point` ≤ `log_end_offset`; what lies between the
    first two is in the tier only.
    """

    __slots__ = (
        "_clock",
        "_cuts",
        "_disk",
        "_failed",
        "_file_created",
        "_files",
        "_flushed_ms",
        "_index",
        "_index_position",
        "_jitter_ms",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_next_offset",
        "_pending_snapshots",
        "_position",
        "_producer_id_expiration_ms",
        "_producer_undo",
        "_randomness",
        "_reaper",
        "_roll_offset",
        "_roll_position",
        "_roll_timestamp",
        "_stage_epoch",
        "_stage_segment",
        "_staged",
        "_staged_rolls",
        "_time_index",
        "_writev",
        "config",
        "directory",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producer_state",
        "recovery_point",
        "segments",
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
        clean: bool = False,
        files: OpenFiles | None = None,
        reaper: Reaper | None = None,
        randomness: Randomness | None = None,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        """Open or create the log.

        Args:
            recovery_point: what lies below was flushed (from the checkpoint).
            log_start_offset: from the checkpoint; 0 if it is not in it.
            clean: the broker was shut down cleanly; nothing needs to be checked.

        Raises:
            OSError: the disk does not do what a log needs.
            CorruptCheckpoint: partition.metadata is damaged, or names another topic id.
        """
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self._clock = clock
        self._disk = disk
        self._files = files or OpenFiles(disk)
        self._reaper = reaper or Reaper(disk)
        self._randomness = randomness or SystemRandomness()
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._writev = disk.writev

        self.segments: list[Segment] = []
        """Oldest first; the last one takes the appends."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = 0
        """The next offset after all that is written."""
        self.recovery_point = recovery_point
        self.leader_epochs = LeaderEpochCache(lambda: self.log_end_offset)
        self.producer_state = ProducerState()
        self._producer_undo = self.producer_state.undo
        self._pending_snapshots: dict[int, dict[int, ProducerEntry]] = {}
        self._file_created = False
        self._failed = False
        self._cuts = 0
        self._flushed_ms = clock.now_ms()

        # What is staged: pieces, the segments begun between them, and the state behind the last piece.
        self._staged: list[memoryview] = []
        self._staged_rolls: list[_StagedRoll] = []
        self._next_offset = 0
        self._position = 0
        self._max_timestamp = -1
        self._max_timestamp_offset = 0
        self._stage_epoch = -1
        self._jitter_ms = 0
        self._stage_segment: Segment
        self._index: OffsetIndex
        self._time_index: TimeIndex
        # Past one of these a batch takes the long way.
        self._roll_position = -1
        self._roll_timestamp = -1
        self._roll_offset = -1
        self._index_position = 0

        self._open(clean)

    def _open(self, clean: bool) -> None:
        disk, now_ms = self._disk, self._clock.now_ms()
        if not disk.exists(self.directory):
            disk.mkdir(self.directory)
            disk.fsync_directory(self.directory.parent)
        metadata = self.directory / PARTITION_METADATA_FILE
        stored_id = read_partition_metadata(disk, metadata)
        if stored_id is None:
            write_partition_metadata(disk, metadata, self.topic_id)
        elif stored_id != self.topic_id:
            raise CorruptCheckpoint(f"{metadata}: topic id {stored_id}, expected {self.topic_id}")
        segments = list_segments(self.directory, self._files, self.config.index_interval_bytes)
        if not segments:
            self._begin_at(self.log_start_offset)
            return
        found = recover_segments(
            segments, self.recovery_point, clean=clean, dense=not self.config.is_compacted, now_ms=now_ms
        )
        self.segments = found.segments
        recover_producers(self.directory, found, self.producer_state)
        self.producer_state.expire(now_ms, self._producer_id_expiration_ms)
        try:
            stored_epochs = read_epochs(disk, self.directory / LEADER_EPOCH_FILE)
        except CorruptCheckpoint as error:
            logger.warning("%s; the leader epochs are read from the batches", error)
            stored_epochs = None
        recover_epochs(stored_epochs, found, self.leader_epochs)
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
        self.recovery_point = min(self.recovery_point, self.log_end_offset)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    # Appending

    def stage(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """Give a checked batch its offset and leader epoch, in place, and queue it for `write_staged`.

        Makes no system call. The view must be writable and is kept until `write_staged`. For a batch with a producer
        id, `producer_state.check(header)` has said yes. Returns the base offset.
        """
        offset = self._next_offset
        length, last_offset = header[1], offset + header[6]
        _pack_stamp(batch, 0, offset, length, leader_epoch)
        position = self._position
        end = position + length + 12
        max_timestamp = header[8]
        if (
            end > self._roll_position
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or leader_epoch != self._stage_epoch
        ):
            position = self._prepare_stage(header, leader_epoch, now_ms)
            end = position + length + 12
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position > self._index_position:
            self._add_index_entry(last_offset, position)
        if header[9] >= 0:
            if header[5] & 0x20:
                self._stage_marker(batch, header, offset, now_ms)
            else:
                self.producer_state.update(header, offset, now_ms)
        self._staged.append(batch)
        self._position = end
        self._next_offset = last_offset + 1
        return offset

    def stage_replicated(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Queue a batch that a leader has stamped already, offset and epoch as they are.

        Raises:
            OffsetOutOfRange: it lies below the log's end.
        """
        if header.base_offset < self._next_offset:
            raise OffsetOutOfRange(header.base_offset, self._next_offset, self._next_offset)
        self._next_offset = header.base_offset
        return self.stage(batch, header, header.partition_leader_epoch, now_ms)

    @property
    def has_staged(self) -> bool:
        return bool(self._staged)

    @property
    def staged_end_offset(self) -> int:
        """The log end once `write_staged` has succeeded."""
        return self._next_offset

    def write_staged(self) -> None:
        """Write all staged batches with one writev, after which the views are let go.

        Raises:
            LogWriteFailed: nothing of what was staged is in the log; it ends where it ended before.
        """
        staged = self._staged
        segment = self._stage_segment
        start = segment.size_bytes
        position = self._position
        if self._staged_rolls or segment.descriptor < 0 or len(staged) > PIECES_PER_WRITE_MAX or self._failed:
            self._write_groups()
        else:
            try:
                written = self._writev(segment.descriptor, staged)
                if written != position - start:
                    self._write_rest(segment.descriptor, staged, written)
            except OSError as error:
                raise self._take_back(error) from error
            # The next reader will mostly come for what follows the last write.
            boundaries = segment.boundaries
            if len(boundaries) > 127:
                boundaries.clear()
            boundaries[self._next_offset] = position
        staged.clear()
        segment.size_bytes = position
        segment.used = True
        segment.max_timestamp = self._max_timestamp
        segment.max_timestamp_offset = self._max_timestamp_offset
        segment.next_offset = self.log_end_offset = self._next_offset
        if self._producer_undo:
            self._producer_undo.clear()

    def _prepare_stage(self, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """The rare things before a batch: a new leader epoch, a new segment, the first batch of one.

        Returns the position at which the batch will stand.
        """
        if leader_epoch != self._stage_epoch:
            self.leader_epochs.assign(leader_epoch, self._next_offset)
            self._stage_epoch = leader_epoch
        segment = self._stage_segment
        position = self._position
        if position and (
            position + header.size_in_bytes > self._roll_position
            or header.max_timestamp > self._roll_timestamp
            or self._next_offset + header.last_offset_delta > self._roll_offset
        ):
            segment = self._new_segment(self._next_offset)
            roll = _StagedRoll(
                len(self._staged),
                segment,
                dict(self.producer_state.entries),
                self._max_timestamp,
                self._max_timestamp_offset,
            )
            self._staged_rolls.append(roll)
            self._stage_into(segment)
            position = 0
        if position == 0:
            segment.first_append_ms = now_ms
            self._set_roll_limits(header.max_timestamp)
        return position

    def _set_roll_limits(self, first_timestamp: int) -> None:
        """Until when the stage segment takes batches (segment.bytes, segment.ms, segment.index.bytes, offsets)."""
        config = self.config
        self._roll_position = config.segment_bytes
        self._roll_offset = self._stage_segment.base_offset + RELATIVE_OFFSET_MAX
        self._roll_timestamp = _NEVER
        if first_timestamp >= 0:
            self._roll_timestamp = first_timestamp + config.segment_ms - self._jitter_ms
        if len(self._index) >= self._index_entries_max:
            self._roll_position = 0

    @property
    def _index_entries_max(self) -> int:
        # A time index keeps room for the entry that the roll adds.
        return max(1, self.config.segment_index_bytes // 12 - 1)

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        base_offset = self._stage_segment.base_offset
        self._index.append(last_offset - base_offset, position)
        self._time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset - base_offset)
        self._index_position = position + self.config.index_interval_bytes
        if len(self._index) >= self._index_entries_max:
            self._roll_position = 0

    def _stage_marker(self, batch: memoryview, header: BatchHeader, offset: int, now_ms: int) -> None:
        marker = read_marker(batch)
        if marker is not None:
            aborted = self.producer_state.end_transaction(header, marker, offset, now_ms)
            if aborted is not None:
                self._stage_segment.aborted.append(aborted)

    def _write_groups(self) -> None:
        """Write what is staged where that is more than one call: new segments, a closed descriptor, many pieces."""
        first = self.segments[-1]
        groups: list[tuple[Segment, list[memoryview]]] = []
        begin, segment = 0, first
        for roll in self._staged_rolls:
            groups.append((segment, self._staged[begin : roll.pieces_before]))
            begin, segment = roll.pieces_before, roll.following
        groups.append((segment, self._staged[begin:]))
        try:
            if self._failed:
                raise OSError("an earlier failed write could not be taken back")
            for segment, pieces in groups:
                descriptor = segment.open() if segment is first else segment.create()
                for at in range(0, len(pieces), PIECES_PER_WRITE_MAX):
                    some = pieces[at : at + PIECES_PER_WRITE_MAX]
                    self._write_rest(descriptor, some, self._writev(descriptor, some))
        except OSError as error:
            raise self._take_back(error) from error
        for (segment, pieces), roll in zip(groups, self._staged_rolls, strict=False):
            segment.size_bytes += sum(map(len, pieces))
            segment.next_offset = roll.following.base_offset
            segment.max_timestamp, segment.max_timestamp_offset = roll.max_timestamp, roll.max_timestamp_offset
            segment.close_for_appends()
            self.segments.append(roll.following)
            self._pending_snapshots[roll.following.base_offset] = roll.producers
            self._file_created = True
        self._staged_rolls.clear()

    def _write_rest(self, descriptor: int, pieces: list[memoryview], written: int) -> None:
        """Go on after a short write."""
        left = sum(map(len, pieces)) - written
        while left:
            rest: list[memoryview] = []
            for piece in pieces:
                if written >= len(piece):
                    written -= len(piece)
                else:
                    rest.append(piece[written:])
                    written = 0
            pieces = rest
            written = self._writev(descriptor, pieces)
            if written == 0:
                raise OSError("the disk took no more bytes and gave no reason")
            left -= written

    def _take_back(self, error: OSError) -> LogWriteFailed:
        """After a failed write: cut the file back to where the write began and forget what was staged."""
        segment = self.segments[-1]
        cut_back = True
        new_segments = [roll.following for roll in self._staged_rolls]
        self._staged.clear()
        self._staged_rolls.clear()
        try:
            if segment.descriptor >= 0:
                self._disk.truncate(segment.descriptor, segment.size_bytes)
            for following in new_segments:
                following.forget()
                if self._disk.exists(following.path):
                    self._disk.unlink(following.path)
        except OSError as cut_error:
            logger.error("%s: a failed write could not be taken back: %s", segment.path, cut_error)
            self._failed, cut_back = True, False
        self.producer_state.take_back(self.log_end_offset)
        # An epoch that begins exactly here may have been assigned by the new leader itself.
        self.leader_epochs.truncate_from_end(self.log_end_offset + 1)
        segment.index.truncate(segment.size_bytes)
        segment.time_index.truncate(self.log_end_offset - segment.base_offset)
        while segment.aborted and segment.aborted[-1].last_offset >= self.log_end_offset:
            segment.aborted.pop()
        self._set_end(self.log_end_offset)
        return LogWriteFailed(f"appending to {segment.path}", error, cut_back=cut_back)

    # Segments

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self._files, self.config.index_interval_bytes)
        segment.become_active(OffsetIndex(), TimeIndex(), [])
        segment.max_timestamp = -1
        return segment

    def _stage_into(self, segment: Segment) -> None:
        """Let the next staged batch go to the end of this segment, which is or will be the last one."""
        self._stage_segment = segment
        self._index, self._time_index = segment.index, segment.time_index
        self._position = segment.size_bytes
        self._max_timestamp, self._max_timestamp_offset = segment.max_timestamp, segment.max_timestamp_offset
        indexed = self._index.positions[-1] if len(self._index) else 0
        self._index_position = indexed + self.config.index_interval_bytes
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._jitter_ms = int(self._randomness.uniform(0, jitter)) if jitter > 0 else 0
        self._roll_position = -1

    def _set_end(self, end_offset: int) -> None:
        """The log ends here now, with nothing staged."""
        segment = self.segments[-1]
        segment.next_offset = self.log_end_offset = self._next_offset = end_offset
        self._stage_epoch = -1
        self._stage_into(segment)
        if segment.size_bytes:
            self._set_roll_limits(segment.first_append_ms)

    def _add_segment(self, base_offset: int) -> Segment:
        """Close the last segment and begin a new one. Raises OSError."""
        segment = self._new_segment(base_offset)
        segment.create()
        self._file_created = True
        if self.segments:
            self.segments[-1].close_for_appends()
        self.segments.append(segment)
        return segment

    def _begin_at(self, offset: int) -> None:
        self.segments = []
        self._add_segment(offset)
        self._set_end(offset)

    def roll(self, now_ms: int) -> Segment | None:
        """Close the active segment and begin a new one at the log's end. None if the active one is empty.

        Raises:
            LogWriteFailed: the new file could not be made; the log goes on in the old one.
        """
        invariant(not self._staged, f"{self!r}: a roll between stage and write_staged")
        active = self.segments[-1]
        if active.size_bytes == 0:
            return None
        try:
            self._add_segment(self.log_end_offset)
        except OSError as error:
            raise LogWriteFailed(f"rolling {active.path}", error) from error
        self._pending_snapshots[self.log_end_offset] = dict(self.producer_state.entries)
        self._set_end(self.log_end_offset)
        return active

    def roll_due(self, now_ms: int) -> bool:
        """Whether the active segment should be rolled though nothing is appended: segment.ms, or tiering.max.lag.ms."""
        active = self.segments[-1]
        if active.size_bytes == 0:
            return False
        age_ms = now_ms - active.first_append_ms
        limit_ms = self.config.segment_ms - self._jitter_ms
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
    def size_bytes(self) -> int:
        """Of all .log files."""
        return sum(segment.size_bytes for segment in self.segments)

    def update_config(self, config: TopicConfig) -> None:
        """Take over changed topic configs; they count from the next batch on."""
        self.config = config
        if not self._staged:
            self._set_end(self.log_end_offset)

    # Reading

    def read(self, offset: int, max_bytes: int, max_offset: int, min_one_batch: bool = True) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on, none at or above `max_offset`, from one segment.

        None when nothing is there yet. Retain the slice before the loop goes on.

        Raises:
            OffsetOutOfRange: below the local log start, or above the log end.
            CorruptBatch: damage on the way.
        """
        end_offset = self.log_end_offset
        if offset > end_offset or offset < self.local_log_start_offset:
            raise OffsetOutOfRange(offset, self.local_log_start_offset, end_offset)
        if offset >= max_offset:
            return None
        return reading.read_slice(
            self.segments, offset, max_bytes, max_offset if max_offset < end_offset else end_offset, min_one_batch
        )

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

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`; a batch that holds it goes whole.

        For followers: no slice may be on its way from above `offset`. Raises OSError, CorruptBatch.
        """
        invariant(not self._staged, f"{self!r}: a cut between stage and write_staged")
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, min(self.log_start_offset, offset))
            return
        while self.segments[-1].base_offset >= offset:
            self._condemn(self.segments.pop())
        segment = self.segments[-1]
        position = segment.position_of(offset)
        if position < segment.size_bytes:
            offset = min(offset, parse_header(segment.disk.pread(segment.open(), HEADER_BYTES, position)).base_offset)
        self._disk.truncate(segment.open(), position)
        segment.cut(offset, position)
        found = recover_segments(
            [segment], min(self.recovery_point, offset), clean=True, dense=False, now_ms=self._clock.now_ms()
        )
        self.log_end_offset = offset
        self._forget_above(offset)
        recover_producers(self.directory, RecoveredLog(self.segments, offset, offset), self.producer_state)
        self._set_end(max(offset, found.end_offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Throw all away and begin anew, empty, at `offset`; the log's start is there too unless one is given.

        Raises OSError.
        """
        invariant(not self._staged, f"{self!r}: a cut between stage and write_staged")
        # The newest first: what a crash leaves is then still the beginning of the log.
        while self.segments:
            self._condemn(self.segments.pop())
        for snapshot in snapshot_offsets(self._disk, self.directory):
            self._disk.unlink(self._snapshot_path(snapshot))
        self.producer_state.clear()
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self._begin_at(offset)
        self._forget_above(offset)

    def _forget_above(self, offset: int) -> None:
        self._cuts += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._pending_snapshots = {at: entries for at, entries in self._pending_snapshots.items() if at <= offset}

    def delete_local_segments_below(self, offset: int) -> int:
        """Let whole segments go that end at or below `offset`; their files go after file.delete.delay.ms.

        When all that is in the log goes, the active segment is rolled first. Without tiering the log start follows.
        Returns how many segments went. Raises LogWriteFailed, OSError.
        """
        if offset >= self.log_end_offset:
            self.roll(self._clock.now_ms())
        count = 0
        while len(self.segments) > 1 and self.segments[0].next_offset <= offset:
            segment = self.segments.pop(0)
            self._condemn(segment)
            self._reaper.condemn(self._snapshot_path(segment.base_offset), self._clock.now_ms())
            self._pending_snapshots.pop(segment.base_offset, None)
            count += 1
        if not self.config.remote_storage_enable and self.segments[0].base_offset > self.log_start_offset:
            self.raise_log_start(self.segments[0].base_offset)
        return count

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
        if not self.config.is_deleted_by_retention:
            return self.segments[0].base_offset
        config = self.config
        end = expired_end(
            self.segments,
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            now_ms=now_ms,
            limit=limit,
        )
        below_start = [segment.next_offset for segment in self.segments if segment.next_offset <= self.log_start_offset]
        return max([end, *below_start])

    def local_retention_deletable(self, now_ms: int, tiered_end: int) -> int:
        """The same by local.retention.ms and local.retention.bytes, for what the tier has confirmed."""
        config = self.config
        return expired_end(
            self.segments,
            retention_ms=config.effective_local_retention_ms,
            retention_bytes=config.effective_local_retention_bytes,
            now_ms=now_ms,
            limit=tiered_end,
        )

    def _condemn(self, segment: Segment) -> None:
        due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
        segment.forget()
        for path in segment.paths:
            self._reaper.condemn(path, due_ms)

    # Producers

    def producer_snapshot_at(self, offset: int) -> bytes | None:
        """The content of Kafka's `.snapshot` at a segment's end or the log's; None if none was taken there."""
        if offset == self.log_end_offset and not self._staged:
            return snapshot_to_bytes(snapshot_of(self.producer_state.entries))
        entries = self._pending_snapshots.get(offset)
        if entries is not None:
            return snapshot_to_bytes(snapshot_of(entries))
        return read_file(self._disk, self._snapshot_path(offset))

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers idle for producer.id.expiration.ms; how many. Costs a look at each."""
        return self.producer_state.expire(now_ms, self._producer_id_expiration_ms)

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"

    # Flushing

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush, or a closed segment waits for one."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if self.segments[-1].base_offset > self.recovery_point or unflushed >= self.config.flush_messages:
            return True
        return now_ms - self._flushed_ms >= self.config.flush_ms

    def prepare_flush(self, *, include_active: bool = True) -> Flush | None:
        """What must be made durable, for a helper thread to `run`; then call `flushed` or `flush_failed` with it.

        None if nothing is to be done. Raises LogWriteFailed when the index files cannot be appended to.
        """
        end_offset = self.log_end_offset if include_active else self.segments[-1].base_offset
        waiting = [
            segment
            for segment in self.segments
            if segment.next_offset > self.recovery_point and (include_active or not segment.is_active)
        ]
        snapshots = {at: entries for at, entries in self._pending_snapshots.items() if at <= end_offset}
        if not waiting and not snapshots and not self.leader_epochs.unstored and not self._file_created:
            return None
        for segment in waiting:
            try:
                segment.open()
                if segment.is_active:
                    segment.store_indexes()
                else:
                    segment.finish_indexes()
            except OSError as error:
                raise LogWriteFailed(f"storing the indexes of {segment.path}", error) from error
        for segment in waiting:
            segment.retain()
        epochs = self.leader_epochs.entries if self.leader_epochs.unstored else None
        flush = Flush(
            self._disk, self.directory, end_offset, waiting, snapshots, epochs, self._file_created, self._cuts
        )
        self._file_created = False
        return flush

    def flushed(self, flush: Flush) -> None:
        """Take in that a flush succeeded."""
        self._release(flush)
        self._flushed_ms = self._clock.now_ms()
        if flush.cuts != self._cuts:
            return
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        for offset in flush.snapshots:
            self._pending_snapshots.pop(offset, None)
        if flush.epochs is not None and flush.epochs == self.leader_epochs.entries:
            self.leader_epochs.unstored = False

    def flush_failed(self, flush: Flush, error: OSError) -> LogWriteFailed:
        """Take in that a flush failed: the kernel may have thrown the pages away, so the log takes no more writes."""
        self._release(flush)
        self._failed = True
        return LogWriteFailed(f"flushing {self.directory}", error, cut_back=False)

    @staticmethod
    def _release(flush: Flush) -> None:
        for segment in flush.segments:
            segment.release()

    def flush(self) -> None:
        """Make everything that is written durable. Blocks.

        Raises:
            LogWriteFailed: nothing may be believed; take the directory offline.
        """
        flush = self.prepare_flush()
        if flush is None:
            return
        try:
            flush.run()
        except OSError as error:
            raise self.flush_failed(flush, error) from error
        self.flushed(flush)

    def close(self, clean: bool = True) -> None:
        """Let the files go. A clean close flushes and takes a producer snapshot, so that the next start reads nothing.

        Raises:
            LogWriteFailed: the clean close could not be made; recovery will do at the next start.
        """
        invariant(not self._staged, f"{self!r}: a close between stage and write_staged")
        try:
            if clean and not self._failed:
                active = self.segments[-1]
                active.time_index.append_if_later(
                    active.max_timestamp, active.max_timestamp_offset - active.base_offset
                )
                self._pending_snapshots[self.log_end_offset] = dict(self.producer_state.entries)
                self.flush()
        finally:
            for segment in self.segments:
                segment.forget()
