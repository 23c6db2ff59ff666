"""The checkpoint files of one data directory: what they say of its logs, and when they are written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from appliance.base.disk import Disk
from appliance.base.ids import TopicPartition
from appliance.log.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from appliance.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class CheckpointedDirectory:
    """The logs of a directory and its checkpoints of them. `LogDirectory` is the whole."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """Logs on their way to here."""
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As of the last checkpoint before the start."""
        self.unopened: set[TopicPartition] = set()
        """Logs that lie here and are left alone: what the checkpoints say of them is kept."""
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        """How far logs have been compacted, as the file says."""
        self._points_lock = threading.Lock()
        self._cleaned_lock = threading.Lock()
        self._stored_keys: set[TopicPartition] = set()
        """The logs of which the checkpoints may say something."""
        self._starts_lock = threading.Lock()
        self._starts_taken = 0
        self._starts_written = 0
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """What the checkpoint files say, as far as this process has written them."""

    # At the start

    def _read_checkpoints(self) -> None:
        self._recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
        self._stored_keys = set(self._recovery_points)
        self._log_starts = self._read_checkpoint(LOG_START_FILE)
        self._cleaned = self._read_checkpoint(CLEANER_FILE)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.disk, self.path / name)
        except CorruptCheckpoint as error:
            logger.warning("%s; without it, more is checked", error)
            return {}

    # Writing

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """What the checkpoint files should say now, of the logs that lie here; the result may be called in a helper
        thread, one at a time. It raises OSError.
        """
        watermarks = self._kept(self.high_watermarks)
        watermarks.update((key, high_watermarks[key]) for key in self._with_futures() if key in high_watermarks)
        write_starts = self.checkpoint_log_starts()

        def write() -> None:
            self._store_recovery_points()
            write_starts()
            self._store_cleaned()
            self._write(HIGH_WATERMARK_FILE, watermarks)

        return write

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """The same for the log starts alone; the result may be called beside other checkpoints, in any order.

        What has been deleted by DeleteRecords must not come back: it is answered when this is done.
        """
        starts = self._kept(self._log_starts)
        starts.update(
            (key, log.log_start_offset)
            for key, log in self._with_futures().items()
            if log.log_start_offset > (0 if log.config.remote_storage_enable else log.segments[0].base_offset)
        )
        self._starts_taken = taken = self._starts_taken + 1

        def write() -> None:
            with self._starts_lock:
                if taken > self._starts_written:
                    self._write(LOG_START_FILE, starts)
                    self._starts_written = taken

        return write

    def store_checkpoints(self) -> None:
        """Make durable what the checkpoints say, but for high watermarks. Blocks; any thread. Raises OSError."""
        self._store_recovery_points()
        self.checkpoint_log_starts()()
        self._store_cleaned()

    def _store_recovery_points(self) -> None:
        # Under the lock, and as they are now: a point that a cut has lowered must not be written over by an older one.
        with self._points_lock:
            logs = self._with_futures()
            points = self._kept(self._recovery_points)
            points.update((key, log.recovery_point) for key, log in logs.items())
            self._write(RECOVERY_POINT_FILE, points)
            self._stored_keys = set(points)
            for key, log in logs.items():
                log.recovery_point_stored(points[key])

    def _store_cleaned(self) -> None:
        with self._cleaned_lock:
            cleaned = self._kept(self._cleaned)
            logs = self._with_futures()
            cleaned.update((key, log.cleaned_offset) for key, log in logs.items() if log.cleaned_offset >= 0)
            if cleaned != self._cleaned:
                write_offsets(self.disk, self.path / CLEANER_FILE, cleaned)
                self._cleaned = cleaned

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Store a checkpoint, unless the file says so already: thousands of idle logs need no write. Raises OSError."""
        if self._written.get(name) != offsets:
            self._written.pop(name, None)
            write_offsets(self.disk, self.path / name, offsets)
            self._written[name] = offsets

    def _with_futures(self) -> dict[TopicPartition, PartitionLog]:
        """A copy: a helper thread may be adding one."""
        return {**self.futures, **self.logs}

    def _kept(self, checkpoint: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: checkpoint[key] for key in self.unopened if key in checkpoint}

    # Logs that are gone

    def forget_checkpoints_of(self, topic_partition: TopicPartition) -> None:
        """What an older log of that name left in the checkpoints means nothing, also after a crash. Raises OSError."""
        self._forget_checkpoints(topic_partition)
        if topic_partition in self._stored_keys:
            self.store_checkpoints()

    def _forget_checkpoints(self, topic_partition: TopicPartition) -> None:
        for checkpoint in (self._recovery_points, self._log_starts, self._cleaned, self.high_watermarks):
            checkpoint.pop(topic_partition, None)
