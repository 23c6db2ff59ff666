"""One flush of a log, so that a helper thread can do the slow part."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from appliance.base.disk import Disk
from appliance.log.checkpoints import LEADER_EPOCH_FILE, PARTITION_METADATA_FILE, epochs_to_bytes, replace_file
from appliance.log.producer_snapshot import snapshot_to_bytes
from appliance.log.producer_state import Producer, snapshot_of
from appliance.log.segment import Segment, file_stem


@dataclass(slots=True)
class Flush:
    """What was not durable when the flush was prepared.

    `PartitionLog.prepare_flush` makes it on the loop, `run` may be called by any thread, `PartitionLog.flushed` takes
    the result on the loop. The segments are retained until then.
    """

    disk: Disk
    directory: Path
    end_offset: int
    """The recovery point once it is done."""
    segments: list[Segment]
    snapshots: dict[int, dict[int, Producer]] = field(default_factory=dict)
    """Producers as they were at these offsets (segment rolls)."""
    epochs: list[tuple[int, int]] | None = None
    """The leader epochs, if the file does not show them."""
    file_created: bool = False
    folder_created: bool = False
    """Whether the folder itself, and whose it is, may not be durable."""
    cuts: int = 0
    """How often the log had been cut; a flush from before a cut says nothing of what was appended since."""

    def run(self, *, durable: bool = True) -> None:
        """Write and flush. Blocks. The order matters: what a snapshot or an epoch names is on disk before it.

        With `durable` false it only writes: for a caller who flushes the whole file system afterwards.

        Raises:
            OSError: nothing of this flush may be believed.
        """
        if durable:
            self._sync_files()
        for offset, entries in self.snapshots.items():
            path = self.directory / f"{file_stem(offset)}.snapshot"
            replace_file(self.disk, path, snapshot_to_bytes(snapshot_of(entries)), durable=durable)
        if self.epochs is not None:
            replace_file(self.disk, self.directory / LEADER_EPOCH_FILE, epochs_to_bytes(self.epochs), durable=durable)
        if durable:
            self._sync_folders()

    def _sync_files(self) -> None:
        if self.folder_created:
            self._sync_if_there(self.directory / PARTITION_METADATA_FILE)
        for segment in self.segments:
            self.disk.fdatasync(segment.descriptor)
            for path in (segment.index_path, segment.time_index_path, segment.transaction_index_path):
                self._sync_if_there(path)

    def _sync_folders(self) -> None:
        # With the epochs the folder has been flushed already.
        if self.epochs is None and (self.file_created or self.folder_created or self.segments):
            self.disk.fsync_directory(self.directory)
        if self.folder_created:
            self.disk.fsync_directory(self.directory.parent)

    def _sync_if_there(self, path: Path) -> None:
        try:
            descriptor = self.disk.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            self.disk.fsync(descriptor)
        finally:
            self.disk.close(descriptor)
