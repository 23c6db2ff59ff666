"""One segment of a log: its files and its indexes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from appliance.base.disk import Disk, Pages, WouldWait
from appliance.log.checkpoints import read_file, write_fully
from appliance.log.damage import DamagedRange
from appliance.log.indexes import (
    ABORTED_ENTRY_BYTES,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    aborted_from_bytes,
    aborted_to_bytes,
)
from appliance.log.open_files import OpenFiles, SegmentGone
from appliance.log.scan import base_offset_at, find_batch, last_end_at_most, walk_batches, walk_headers
from appliance.records.batch import BatchHeader
from appliance.records.errors import CorruptBatch

logger = logging.getLogger(__name__)

NO_TIMESTAMP = -1
_UNINDEXED_INTERVALS_MAX = 64
INDEXED_CUT_MIN_BYTES = 262_144
"""A slice that is longer may end at an index entry, which costs it about as much as stands between two of them."""
KNOWN_BOUNDARIES_MAX = 128
"""Batch boundaries that a segment remembers, so that readers who follow the end need no walk over headers."""


def file_stem(offset: int) -> str:
    """The name that Kafka gives the files of a segment: its base offset in 20 digits."""
    return f"{offset:020d}"


class Segment:
    """A range [base_offset, next_offset) of the log, in one .log file with its indexes.

    The newest segment of a log is the active one and keeps its indexes in memory; those of closed ones are read when
    needed, and dropped again by `OpenFiles`.
    """

    __slots__ = (
        "_aborted",
        "_files",
        "_index",
        "_max_timestamp",
        "_time_index",
        "base_offset",
        "boundaries",
        "close_when_released",
        "counted_index_bytes",
        "descriptor",
        "directory",
        "first_append_ms",
        "first_batch_timestamp",
        "has_unstored_indexes",
        "index_interval_bytes",
        "is_active",
        "is_damaged",
        "is_gone",
        "knows_its_times",
        "max_timestamp_offset",
        "next_offset",
        "references",
        "size_bytes",
        "stored_aborted",
        "used",
    )

    def __init__(self, directory: Path, base_offset: int, files: OpenFiles, index_interval_bytes: int = 4096) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = base_offset
        """Where the next segment begins; of the active segment, where the next write goes."""
        self.size_bytes = 0
        self.first_append_ms = -1
        """When its first record was appended; -1 while empty. After a restart, what the record itself says."""
        self.first_batch_timestamp = NO_TIMESTAMP
        """The largest of the first batch, once `learn_times` has been called."""
        self.knows_its_times = False
        self.index_interval_bytes = index_interval_bytes
        self.is_active = False
        self.is_gone = False
        """It is no longer part of the log; `OpenFiles` opens it no more."""
        self.is_damaged = False
        """Damage below the recovery point was seen at the start: a read must look at every header."""
        self.has_unstored_indexes = False
        self.max_timestamp_offset = base_offset
        self.boundaries: dict[int, int] = {}
        """Some offsets at which a batch begins, and where in the file."""
        self.descriptor = -1
        self.references = 0
        self.used = False
        self.close_when_released = False
        self.counted_index_bytes: int | None = None
        """What `OpenFiles` counts for its index in memory."""
        self.stored_aborted = 0
        """How many aborted transactions the file holds; -1: it holds something else."""
        self._files = files
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._max_timestamp: int | None = None

    def __repr__(self) -> str:
        return f"Segment({self.directory.name}, [{self.base_offset}, {self.next_offset}), {self.size_bytes} bytes)"

    def file(self, suffix: str) -> str:
        """The name of one of its files, for opening it: a `Path` costs several times as much."""
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    @property
    def path(self) -> Path:
        return self.directory / f"{file_stem(self.base_offset)}.log"

    @property
    def index_path(self) -> Path:
        return self.directory / f"{file_stem(self.base_offset)}.index"

    @property
    def time_index_path(self) -> Path:
        return self.directory / f"{file_stem(self.base_offset)}.timeindex"

    @property
    def transaction_index_path(self) -> Path:
        return self.directory / f"{file_stem(self.base_offset)}.txnindex"

    @property
    def paths(self) -> list[Path]:
        """Every file the segment may have."""
        return [self.path, self.index_path, self.time_index_path, self.transaction_index_path]

    @property
    def disk(self) -> Disk:
        return self._files.disk

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, -1 if none has one."""
        if self._max_timestamp is None:
            time_index = self.time_index
            if len(time_index):
                self.max_timestamp_offset = self.base_offset + time_index.offsets[-1]
            self._max_timestamp = time_index.timestamps[-1] if len(time_index) else NO_TIMESTAMP
        return self._max_timestamp

    @max_timestamp.setter
    def max_timestamp(self, timestamp: int) -> None:
        self._max_timestamp = timestamp

    def open(self) -> int:
        """The descriptor, opened if need be. Raises OSError."""
        self.used = True
        return self.descriptor if self.descriptor >= 0 else self._files.open(self)

    def create(self) -> int:
        """Make the .log file and open it. Raises OSError."""
        return self._files.open(self, create=True)

    def open_under_another_name(self, path: Path) -> None:
        """Open the .log file before it has its name; while it has not, the segment must be retained."""
        self._files.open(self, path=path)

    def hold_indexes(self, index: OffsetIndex, time_index: TimeIndex, aborted: list[AbortedTransaction]) -> None:
        """Keep the indexes in memory while their files have not their names."""
        self._index, self._time_index, self._aborted = index, time_index, aborted
        self.stored_aborted = len(aborted)

    def has_its_names(self) -> None:
        """From now on the files can be read by their names."""
        self._time_index = None
        if self._index is not None:
            self._files.index_loaded(self, self._index.size_in_memory)
        self.release()

    def close(self) -> None:
        self._files.close(self)

    def retain(self) -> None:
        """Keep the file readable until `release`. Helper threads may too: nothing comes between the halves of a +=."""
        self.references += 1

    def release(self) -> None:
        self.references -= 1
        if self.references == 0 and (self.close_when_released or self._files.is_crowded):
            self._files.released(self)

    # Indexes

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read from its file or built from the log if need be."""
        if self._index is None:
            self._index = self._load_index()
            self._check_presence()
            if not self.is_active:
                self._files.index_loaded(self, self._index.size_in_memory)
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; that of a closed segment is read anew each time."""
        if self._time_index is not None:
            return self._time_index
        content = read_file(self.disk, self.time_index_path)
        self._check_presence()
        try:
            time_index = TimeIndex.from_bytes(content or b"")
            # A closed segment without timestamps has none either. Nothing but zeros is what a lost page looks like.
            if not len(time_index) and self.size_bytes:
                raise CorruptIndex("there is none")
            return time_index
        except CorruptIndex:
            return self.rebuild_indexes()[1]

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers are in this segment, in marker order."""
        if self._aborted is None:
            try:
                self._aborted = aborted_from_bytes(read_file(self.disk, self.transaction_index_path) or b"")
                self._check_presence()
            except CorruptIndex:
                self._check_presence()
                # Recovery rebuilds it where it may; a reader of a damaged one must not lose records silently.
                raise CorruptBatch(f"{self.transaction_index_path} is damaged") from None
            self.stored_aborted = len(self._aborted)
        return self._aborted

    @property
    def knows_aborted(self) -> bool:
        """Whether its aborted transactions are in memory."""
        return self._aborted is not None

    def become_active(self, index: OffsetIndex, time_index: TimeIndex, aborted: list[AbortedTransaction]) -> None:
        """Own the indexes from now on, to append to them."""
        self._files.forget_index(self)
        self._index, self._time_index, self._aborted = index, time_index, aborted
        self.is_active = True

    def close_for_appends(self) -> None:
        """The segment was rolled: store its indexes; from now on they may be dropped from memory.

        When the disk refuses, they stay in memory, and `finish_indexes` tries again.
        """
        self.is_active = False
        self.boundaries.clear()
        if self._time_index is not None:
            self._time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.has_unstored_indexes = True
        try:
            self.finish_indexes()
        except OSError as error:
            logger.warning("%s: its indexes could not be stored yet: %s", self.path, error)

    def finish_indexes(self) -> None:
        """Store the indexes of a closed segment, if that was not possible before. Raises OSError."""
        if not self.has_unstored_indexes:
            return
        self.store_indexes()
        self.has_unstored_indexes = False
        self._time_index = None
        if self._index is not None:
            self._files.index_loaded(self, self._index.size_in_memory)

    def cut(self, offset: int, size_bytes: int) -> None:
        """The log file was cut to `size_bytes` and ends at `offset`: cut the index files too. Raises OSError."""
        index, time_index = self.index, self.time_index
        aborted = [transaction for transaction in self.aborted if transaction.last_offset < offset]
        index.truncate(size_bytes)
        time_index.truncate(offset - self.base_offset)
        self.become_active(index, time_index, aborted)
        self.size_bytes = size_bytes
        self.boundaries.clear()
        self.store_indexes()

    def drop_index(self) -> None:
        """Let the index in memory go; the file has it."""
        self._index = None

    def forget(self) -> None:
        """The segment is no longer part of the log."""
        if self.is_damaged:
            self._files.damage.forget(self)
        if not self.is_active:
            self._files.forget_index(self)
        self._files.close(self)

    def condemn(self) -> None:
        """The segment is no longer part of the log, and its files will have other names."""
        self.forget()
        self._files.condemn(self)

    def moved(self, directory: Path, files: OpenFiles) -> None:
        """Its files lie in another folder now, and are counted with others. Nobody holds it."""
        self._files.close(self)
        self._files.forget_index(self)
        if not self.is_active and not self.has_unstored_indexes:
            self._index = self._time_index = None
        self.directory, self._files = directory, files

    def learn_times(self) -> None:
        """Find out the first and the largest timestamp. Reads files: for a helper thread, while retained."""
        try:
            self.first_batch_timestamp = next((header.max_timestamp for _, header in self.headers()), NO_TIMESTAMP)
            # Reading it takes it from the time index.
            self.max_timestamp = self.max_timestamp
        except CorruptBatch as error:
            logger.warning("%s: its times are not known: %s", self.path, error)
        self.knows_its_times = True

    def _check_presence(self) -> None:
        """What was read by a name may be of the segment that has that name now."""
        if self.is_gone:
            raise SegmentGone(self.path)

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Build both indexes from the batches, as far as they can be read, and store them if there is space."""
        index, time_index = OffsetIndex(), TimeIndex()
        max_timestamp, max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        indexed_position = 0
        try:
            for position, header in self.headers():
                if header.max_timestamp > max_timestamp:
                    max_timestamp, max_timestamp_offset = header.max_timestamp, header.last_offset
                if position - indexed_position > self.index_interval_bytes:
                    index.append(header.last_offset - self.base_offset, position)
                    time_index.append_if_later(max_timestamp, max_timestamp_offset - self.base_offset)
                    indexed_position = position
        except CorruptBatch:
            # Damage below the recovery point stays where it is; what lies behind it cannot be indexed.
            pass
        time_index.append_if_later(max_timestamp, max_timestamp_offset - self.base_offset)
        self._max_timestamp, self.max_timestamp_offset = max_timestamp, max_timestamp_offset

        def store() -> None:
            self._append_to_file(self.index_path, index.unstored(), 0)
            self._append_to_file(self.time_index_path, time_index.unstored(), 0)
            index.stored_entries, time_index.stored_entries = len(index), len(time_index)

        try:
            self._files.while_present(self, store)
        except SegmentGone:
            raise
        except OSError as error:
            # Reads must go on while the disk is full.
            logger.warning("%s: its indexes could not be stored: %s", self.path, error)
        return index, time_index

    def store_indexes(self) -> None:
        """Append to the index files what they lack. Raises OSError; then it can be tried again."""
        index, time_index, aborted = self._index, self._time_index, self._aborted
        if index is not None:
            position = index.stored_entries * OFFSET_ENTRY_BYTES
            self._append_to_file(self.index_path, index.unstored(), position)
            index.stored_entries = len(index)
        if time_index is not None:
            position = time_index.stored_entries * TIME_ENTRY_BYTES
            self._append_to_file(self.time_index_path, time_index.unstored(), position)
            time_index.stored_entries = len(time_index)
        if aborted is not None and len(aborted) != self.stored_aborted:
            start = max(0, min(self.stored_aborted, len(aborted)))
            content = aborted_to_bytes(aborted[start:])
            self._append_to_file(self.transaction_index_path, content, start * ABORTED_ENTRY_BYTES)
            self.stored_aborted = len(aborted)

    def _append_to_file(self, path: Path, content: bytes, position: int) -> None:
        descriptor = self.disk.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            write_fully(self.disk, descriptor, content, position)
            # The file may be longer from an earlier life: allocated in advance, or cut in memory only.
            if self.disk.size(descriptor) != position + len(content):
                self.disk.truncate(descriptor, position + len(content))
        finally:
            self.disk.close(descriptor)

    def _load_index(self) -> OffsetIndex:
        content = read_file(self.disk, self.index_path)
        try:
            # A few batches need no entry; many without one are slow to read.
            index = OffsetIndex.from_bytes(content or b"", self.size_bytes)
            if content is None or (not len(index) and self._is_large):
                raise CorruptIndex("there is none")
            return index
        except CorruptIndex:
            return self.rebuild_indexes()[0]

    @property
    def _is_large(self) -> bool:
        return self.size_bytes > _UNINDEXED_INTERVALS_MAX * self.index_interval_bytes

    # Reading

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from a position on. Raises CorruptBatch while iterating."""
        return walk_headers(self.disk, self.open(), position, self.size_bytes if end is None else end, self.base_offset)

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, bytes) of each batch from a position on, crc checked. Raises CorruptBatch on the way."""
        return walk_batches(self.disk, self.open(), position, self.size_bytes, self.base_offset)

    def must_not_wait(self) -> None:
        """Raises WouldWait if the file is not open, or its index not in memory."""
        if self.descriptor < 0 or self._index is None:
            raise WouldWait(f"{self.path} has to be opened")

    def position_of(self, offset: int, pages: Pages | None = None) -> int:
        """Where the batch begins that holds `offset`, or the next one; the end of the file if none is left.

        Raises:
            CorruptBatch: the way there leads over damage.
            WouldWait: with `pages`, if the disk has to be read.
        """
        position = self.boundaries.get(offset)
        if position is not None:
            return position
        if offset >= self.next_offset:
            return self.size_bytes
        if offset <= self.base_offset:
            return 0
        if pages is not None:
            self.must_not_wait()
        start = self.index.position_before(offset - self.base_offset)
        if self.is_damaged:
            start = max(start, self._files.damage.way_around(self, offset))
        position, _ = find_batch(cast("Disk", pages or self.disk), self.open(), start, self.size_bytes, offset)
        return position

    def end_of_slice(self, position: int, limit: int, end: int, min_one_batch: bool, pages: Pages | None = None) -> int:
        """The last batch end in [position, end] that is not above `limit`; with `min_one_batch` at least the first's.

        Of a long slice not the last, but one that the index knows. `position` and `end` are batch boundaries.

        Raises:
            CorruptBatch: the way there leads over damage.
        """
        if self.is_damaged:
            return self._end_before_damage(position, limit, end, min_one_batch)
        if end <= limit:
            return end
        if pages is not None:
            self.must_not_wait()
        descriptor = self.open()
        disk = cast("Disk", pages or self.disk)
        start = max(position, self.index.position_at_most(limit))
        if start - position >= INDEXED_CUT_MIN_BYTES:
            # An index entry stands close enough below the limit. The reader comes next for the batch that begins there.
            self.remember_boundary(base_offset_at(disk, descriptor, start, end), start)
            return start
        cut = last_end_at_most(disk, descriptor, start, end, limit)
        if cut == position and min_one_batch:
            _, size = find_batch(disk, descriptor, position, end, -1)
            cut += size
        return cut

    def _end_before_damage(self, position: int, limit: int, end: int, min_one_batch: bool) -> int:
        cut = position
        try:
            for at, header in self.headers(position, end):
                known = self._files.damage.covers(self, header.base_offset)
                if known is not None:
                    raise CorruptBatch(known.reason)
                if at + header.size_in_bytes > limit and (at > position or not min_one_batch):
                    break
                cut = at + header.size_in_bytes
        except CorruptBatch:
            if cut == position:
                raise
        return cut

    def suspect_damage(self) -> None:
        """A read has found damage: it will be looked into. Any thread may call this."""
        self._files.damage.suspect(self)

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """What cannot be read, as far as it is known."""
        return self._files.damage.of_segment(self)

    def remember_boundary(self, offset: int, position: int) -> None:
        """Note that a batch begins here, for a reader who will come to it."""
        if len(self.boundaries) >= KNOWN_BOUNDARIES_MAX:
            self.boundaries.clear()
        self.boundaries[offset] = position
