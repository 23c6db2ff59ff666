"""The append path of a log: `stage` queues, `write_staged` writes, a failed write leaves no trace.

`stage` stamps a batch and queues it, without a system call; `write_staged` writes all that was queued with one writev.
Nothing but the records is written: indexes, leader epochs and producer snapshots lie in memory until the log is rolled
or flushed.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import NamedTuple

from appliance.base.config import TopicConfig
from appliance.base.disk import Disk
from appliance.base.errors import invariant
from appliance.base.randomness import Randomness
from appliance.log.errors import LogWriteFailed, OffsetOutOfRange
from appliance.log.indexes import OffsetIndex, TimeIndex
from appliance.log.leader_epochs import LeaderEpochCache
from appliance.log.open_files import OpenFiles
from appliance.log.producer_state import Producer, ProducerState
from appliance.log.scan import RELATIVE_OFFSET_MAX
from appliance.log.segment import KNOWN_BOUNDARIES_MAX, Segment
from appliance.log.writeback import NEVER
from appliance.records.batch import BatchHeader
from appliance.records.control import read_marker

logger = logging.getLogger(__name__)

PIECES_PER_WRITE_MAX = 1024
"""What one writev takes (IOV_MAX)."""
_NEVER = 1 << 62

_pack_stamp = struct.Struct(">qii").pack_into


class _StagedRoll(NamedTuple):
    """A new segment between two staged batches, and what the one before it ends with."""

    pieces_before: int
    following: Segment
    producers: dict[int, Producer]
    max_timestamp: int
    max_timestamp_offset: int


class Appender:
    """The segments of a log and what is staged for the last one. `PartitionLog` is the whole."""

    __slots__ = (
        "_disk",
        "_failed",
        "_file_created",
        "_files",
        "_index",
        "_index_position",
        "_jitter_ms",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_next_offset",
        "_pending_snapshots",
        "_position",
        "_producer_undo",
        "_randomness",
        "_roll_offset",
        "_roll_position",
        "_roll_timestamp",
        "_stage_epoch",
        "_stage_segment",
        "_staged",
        "_staged_rolls",
        "_time_index",
        "_writeback_position",
        "_writev",
        "config",
        "directory",
        "leader_epochs",
        "log_end_offset",
        "producer_state",
        "segments",
    )

    def __init__(
        self, directory: Path, config: TopicConfig, disk: Disk, files: OpenFiles, randomness: Randomness
    ) -> None:
        self.directory = directory
        self.config = config
        self.segments: list[Segment] = []
        """Oldest first; the last one takes the appends."""
        self.log_end_offset = 0
        """The next offset after all that is written."""
        self.leader_epochs = LeaderEpochCache(lambda: self.log_end_offset)
        self.producer_state = ProducerState()
        self._disk = disk
        self._files = files
        self._randomness = randomness
        self._writev = disk.writev
        self._producer_undo = self.producer_state.undo
        self._pending_snapshots: dict[int, dict[int, Producer]] = {}
        """Producers at the rolls whose snapshot files are not written yet."""
        self._file_created = False
        self._failed = False

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
        self._writeback_position = NEVER

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
            if len(boundaries) >= KNOWN_BOUNDARIES_MAX:
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
                self.producer_state.copy(),
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
            self._roll_timestamp = first_timestamp + config.roll_ms - self._jitter_ms
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
        if position >= self._writeback_position:
            self._writeback_position = self._files.writeback.want(self._stage_segment, position)
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
            self._files.rolled.append(self.directory)
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
        return LogWriteFailed(f"appending to {segment.path}", error, self.directory, cut_back=cut_back)

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
        self._writeback_position = self._files.writeback.first_position(segment.size_bytes)
        jitter = min(self.config.segment_jitter_ms, self.config.roll_ms)
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
            self._files.rolled.append(self.directory)
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
            raise LogWriteFailed(f"rolling {active.path}", error, self.directory) from error
        self._pending_snapshots[self.log_end_offset] = self.producer_state.copy()
        self._set_end(self.log_end_offset)
        return active
