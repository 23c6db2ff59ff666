"""A cleaned segment takes the place of old ones, while readers go on. The steps are those of `segment_swap.py`.

1. `prepare`, in a helper thread: the new files become `.swap`, durably, and are opened.
2. `CompactedLog.replace`, on the loop: from now on readers find the new segment. No call to the disk.
3. `finish`, in a helper thread: the old files become `.deleted`, durably; then the new ones get their names.
4. `CompactedLog.replaced`, on the loop: the new segment is one like any other.
"""

from __future__ import annotations

import threading
from pathlib import Path

from appliance.base.disk import Disk
from appliance.log.checkpoints import read_file
from appliance.log.indexes import OffsetIndex, TimeIndex, aborted_from_bytes
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.segment import Segment, file_stem
from appliance.log.segment_swap import (
    SWAP_SUFFIX,
    CleanedSegment,
    commit_swap,
    discard,
    finish_swap,
)


class Replacement:
    """One cleaned segment and those that it stands for."""

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        reaper: Reaper,
        cleaned: CleanedSegment,
        sources: list[Segment],
        delete_delay_ms: int,
    ) -> None:
        self.cleaned = cleaned
        self.sources = sources
        self.directory = sources[0].directory
        self.is_in_force = False
        """Readers find the new segment."""
        self.is_finished = False
        self._disk = disk
        self._reaper = reaper
        self._delete_delay_ms = delete_delay_ms
        self._lock = threading.Lock()
        segment = Segment(self.directory, cleaned.base_offset, files, sources[0].index_interval_bytes)
        segment.next_offset = sources[-1].next_offset
        segment.size_bytes = cleaned.size_bytes
        segment.max_timestamp, segment.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
        self.segment = segment

    def prepare(self) -> None:
        """Blocks. Raises OSError: then `discard` what is there; the old segments still count."""
        disk, segment = self._disk, self.segment
        commit_swap(disk, self.directory, segment.base_offset)
        disk.fsync_directory(self.directory)
        segment.retain()
        segment.open_under_another_name(_swap(segment.path))
        index = OffsetIndex.from_bytes(read_file(disk, _swap(segment.index_path)) or b"", segment.size_bytes)
        time_index = TimeIndex.from_bytes(read_file(disk, _swap(segment.time_index_path)) or b"")
        aborted = aborted_from_bytes(read_file(disk, _swap(segment.transaction_index_path)) or b"")
        segment.hold_indexes(index, time_index, aborted)

    def discard(self) -> None:
        """Remove the new files: the log has changed meanwhile. Blocks. Raises OSError."""
        if self.segment.references:
            self.segment.release()
            self.segment.forget()
        discard(self._disk, self.directory, self.segment.base_offset)
        self._disk.fsync_directory(self.directory)

    def finish(self, now_ms: int) -> None:
        """Blocks; may be called twice, by any thread.

        Raises:
            OSError: nothing may be believed until a restart.
        """
        with self._lock:
            if self.is_finished:
                return
            due_ms = now_ms + self._delete_delay_ms
            for old in self.sources:
                for path in old.paths:
                    self._reaper.condemn(path, due_ms)
                if old is not self.sources[0]:
                    # A producer snapshot belongs to a segment's beginning.
                    self._reaper.condemn(self.directory / f"{file_stem(old.base_offset)}.snapshot", due_ms)
            self._disk.fsync_directory(self.directory)
            finish_swap(self._disk, self.directory, self.segment.base_offset)
            self.is_finished = True


def _swap(path: Path) -> Path:
    return path.with_name(path.name + SWAP_SUFFIX)
