"""The files of a segment that is written anew, as `<offset>.<kind>.cleaned`, until it takes the place of old ones."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from appliance.base.disk import Disk
from appliance.log.checkpoints import write_fully
from appliance.log.indexes import AbortedTransaction, OffsetIndex, TimeIndex, aborted_to_bytes
from appliance.log.segment import NO_TIMESTAMP, file_stem
from appliance.log.segment_swap import CLEANED_SUFFIX, CleanedSegment
from appliance.records.batch import BatchHeader

WRITE_BYTES = 1 << 20


@dataclass(slots=True)
class CleanedFile:
    """The files of one new segment, from its first batch to its last; durable when `finish` returns."""

    disk: Disk
    directory: Path
    base_offset: int
    index_interval_bytes: int
    descriptor: int = -1
    size_bytes: int = 0
    written_bytes: int = 0
    indexed_position: int = 0
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)
    index: OffsetIndex = field(default_factory=OffsetIndex)
    time_index: TimeIndex = field(default_factory=TimeIndex)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def open(self) -> None:
        self.descriptor = self.disk.open(self._path(".log"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.max_timestamp_offset = self.base_offset

    def append(self, header: BatchHeader, max_timestamp: int, batch: bytes | memoryview) -> int:
        """Queue a batch; returns the bytes that were written."""
        position = self.size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, header.last_offset
        if position - self.indexed_position > self.index_interval_bytes:
            self.index.append(header.last_offset - self.base_offset, position)
            self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.indexed_position = position
        self.pieces.append(batch)
        self.size_bytes += len(batch)
        return self.write() if self.size_bytes - self.written_bytes >= WRITE_BYTES else 0

    def write(self) -> int:
        content = b"".join(self.pieces)
        self.pieces.clear()
        write_fully(self.disk, self.descriptor, content, self.written_bytes)
        self.written_bytes += len(content)
        return len(content)

    def finish(self, sources: list[int]) -> CleanedSegment:
        """Make all files durable. Raises OSError."""
        self.disk.fdatasync(self.descriptor)
        self.time_index.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self._store(".index", self.index.unstored())
        self._store(".timeindex", self.time_index.unstored())
        self._store(".txnindex", aborted_to_bytes(self.aborted))
        self.disk.fsync_directory(self.directory)
        return CleanedSegment(
            self.base_offset, self.size_bytes, self.max_timestamp, self.max_timestamp_offset, tuple(sources)
        )

    def close(self) -> None:
        if self.descriptor >= 0:
            self.disk.close(self.descriptor)
            self.descriptor = -1

    def _store(self, suffix: str, content: bytes) -> None:
        descriptor = self.disk.open(self._path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_fully(self.disk, descriptor, content, 0)
            self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)

    def _path(self, suffix: str) -> Path:
        return self.directory / f"{file_stem(self.base_offset)}{suffix}{CLEANED_SUFFIX}"
