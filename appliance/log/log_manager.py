"""All logs of one broker in its data directory.

```
DIR/lock                              held as long as the broker lives
DIR/meta.properties                   cluster.id, node.id, directory.id, version=1
DIR/boot-id                           of the host's boot in which the directory was last used
DIR/.kafka_cleanshutdown              {"version":0,"brokerEpoch":n}; there only between a clean stop and the next start
DIR/recovery-point-offset-checkpoint
DIR/log-start-offset-checkpoint
DIR/replication-offset-checkpoint     high watermarks
DIR/<topic>-<partition>/              a log
DIR/<topic>-<partition>.<32 hex digits>-delete/   a deleted log, until its files go
```
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.config import TopicConfig
from appliance.base.disk import Disk
from appliance.base.errors import UserError, invariant
from appliance.base.ids import TopicPartition, is_usable_uuid, uuid_from_text, uuid_to_text
from appliance.base.randomness import Randomness, SystemRandomness, random_uuid
from appliance.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpoint,
    read_file,
    read_offsets,
    read_partition_metadata,
    read_properties,
    replace_file,
    write_offsets,
    write_properties,
)
from appliance.log.errors import LogWriteFailed
from appliance.log.open_files import OPEN_SEGMENTS_MAX, OpenFiles, Reaper
from appliance.log.partition_log import PRODUCER_ID_EXPIRATION_MS, PartitionLog

logger = logging.getLogger(__name__)

LOCK_FILE = "lock"
BOOT_ID_FILE = "boot-id"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
DELETE_SUFFIX = "-delete"
_FOLDER_EXIT_CODE = 3
_FOLDER_NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_FOLDER_NAME_MAX_BYTES = 255
_BOOT_ID_SOURCE = Path("/proc/sys/kernel/random/boot_id")


class Shutdown(Enum):
    """How the directory was left the last time: what a broker reports when it registers."""

    CLEAN = "clean"
    SAME_BOOT = "same-boot"
    """The process died, but the host did not: what was written is in the page cache."""
    UNCLEAN = "unclean"
    EMPTY = "empty"


class DirectoryState(Enum):
    """What the disk lets us do."""

    ONLINE = "online"
    FULL = "full"
    """Reads go on; writes are refused until `log.dir.min.free.bytes` are free."""
    OFFLINE = "offline"
    """The disk has lied or failed: nothing is believed until a restart."""


def host_boot_id() -> str:
    """An id of this boot of the host, "" where it cannot be known."""
    try:
        return _BOOT_ID_SOURCE.read_text().strip()
    except OSError:
        return ""


class DirectoryLock:
    """The right to use a data directory, held until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Raises UserError (exit code 3): the folder cannot be used, or another process holds it."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"cannot use the data folder {directory}: {error.strerror}", _FOLDER_EXIT_CODE) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise UserError(f"another process uses the data folder {directory}", _FOLDER_EXIT_CODE) from error

    def release(self) -> None:
        os.close(self._descriptor)


class LogManager:
    """Opens, creates, deletes and checkpoints the logs of one data directory."""

    def __init__(
        self,
        directory: Path,
        *,
        broker_id: int,
        cluster_id: str,
        clock: Clock,
        disk: Disk,
        randomness: Randomness | None = None,
        boot_id: str | None = None,
        min_free_bytes: int = 0,
        max_open_segments: int = OPEN_SEGMENTS_MAX,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        lock: Callable[[Path], DirectoryLock] = DirectoryLock,
    ) -> None:
        """Lock the directory and read what it says about itself; a new one gets its meta.properties.

        Raises:
            UserError: exit code 3: the folder is not usable, is locked, or belongs to another broker or cluster.
        """
        self.directory = directory
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As of the last checkpoint before the start."""
        self.state = DirectoryState.ONLINE
        self.accepts_writes = True
        """False while the directory is full or offline: answer KAFKA_STORAGE_ERROR without staging anything."""
        self._clock = clock
        self._disk = disk
        self._randomness = randomness or SystemRandomness()
        self._min_free_bytes = min_free_bytes
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._files = OpenFiles(disk, max_open_segments)
        self._reaper = Reaper(disk)
        self._starts_lock = threading.Lock()
        self._starts_taken = 0
        self._starts_written = 0
        self._lock = lock(directory)
        try:
            self.directory_id, self.last_shutdown = self._read_identity(
                boot_id if boot_id is not None else host_boot_id()
            )
            self._recovery_points = self._read_checkpoint(RECOVERY_POINT_FILE)
            self._log_starts = self._read_checkpoint(LOG_START_FILE)
            self.high_watermarks = self._read_checkpoint(HIGH_WATERMARK_FILE)
        except OSError as error:
            self._lock.release()
            raise UserError(f"cannot use the data folder {directory}: {error.strerror}", _FOLDER_EXIT_CODE) from error
        except UserError:
            self._lock.release()
            raise

    def _read_identity(self, boot_id: str) -> tuple[uuid.UUID, Shutdown]:
        disk = self._disk
        path = self.directory / META_PROPERTIES_FILE
        stored = read_properties(disk, path)
        boot_path = self.directory / BOOT_ID_FILE
        if stored is None:
            directory_id = random_uuid(self._randomness)
            while not is_usable_uuid(directory_id):
                directory_id = random_uuid(self._randomness)
            shutdown = Shutdown.EMPTY
            properties = {
                "cluster.id": self.cluster_id,
                "directory.id": uuid_to_text(directory_id),
                "node.id": str(self.broker_id),
                "version": "1",
            }
            write_properties(disk, path, properties)
        else:
            directory_id = self._check_identity(path, stored)
            last_boot_id = (read_file(disk, boot_path) or b"").decode("ascii", "replace").strip()
            clean_path = self.directory / CLEAN_SHUTDOWN_FILE
            if disk.exists(clean_path):
                shutdown = Shutdown.CLEAN
                # From now on a crash would be one: the mark goes before anything is written.
                disk.unlink(clean_path)
            else:
                shutdown = Shutdown.SAME_BOOT if boot_id and last_boot_id == boot_id else Shutdown.UNCLEAN
        replace_file(disk, boot_path, f"{boot_id}\n".encode())
        disk.fsync_directory(self.directory)
        return directory_id, shutdown

    def _check_identity(self, path: Path, stored: Mapping[str, str]) -> uuid.UUID:
        def refuse(what: str) -> UserError:
            return UserError(f"the data folder {self.directory} {what}", _FOLDER_EXIT_CODE)

        if stored.get("cluster.id") != self.cluster_id:
            raise refuse(f"belongs to cluster {stored.get('cluster.id')}, not {self.cluster_id}")
        if stored.get("node.id") != str(self.broker_id):
            raise refuse(f"belongs to broker {stored.get('node.id')}, not {self.broker_id}")
        try:
            return uuid_from_text(stored.get("directory.id", ""))
        except ValueError:
            raise refuse(f"has no directory.id in {path.name}") from None

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._disk, self.directory / name)
        except CorruptCheckpoint as error:
            logger.warning("%s; without it, more is checked", error)
            return {}

    # Logs

    def load_all(self, config_of: Callable[[str], TopicConfig]) -> dict[TopicPartition, PartitionLog]:
        """Open every log in the directory, recovering what was not flushed. Blocks.

        Folders without a usable partition.metadata are passed over and stay where they are.

        Raises:
            OSError: the disk fails.
        """
        clean = self.last_shutdown is Shutdown.CLEAN
        for name in self._disk.listdir(self.directory):
            if name.endswith(DELETE_SUFFIX):
                self._reaper.condemn(self.directory / name, self._clock.now_ms())
                continue
            topic_partition = parse_folder_name(name)
            if topic_partition is None or topic_partition in self.logs:
                continue
            try:
                topic_id = read_partition_metadata(self._disk, self.directory / name / PARTITION_METADATA_FILE)
            except (CorruptCheckpoint, NotADirectoryError) as error:
                logger.error("%s is passed over: %s", name, error)
                continue
            if topic_id is None:
                logger.error("%s is passed over: it has no %s", name, PARTITION_METADATA_FILE)
                continue
            self._open(topic_partition, topic_id, config_of(topic_partition.topic), clean)
        return self.logs

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """Open the log, or begin it if there is none. A folder of another topic of that name is deleted later.

        Blocks; a helper thread may do it, for one partition at a time.

        Raises:
            OSError: the disk refuses.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            invariant(log.topic_id == topic_id, f"{log!r} belongs to another topic of that name")
            return log
        folder = self.directory / str(topic_partition)
        if self._disk.exists(folder):
            try:
                stored_id = read_partition_metadata(self._disk, folder / PARTITION_METADATA_FILE)
            except CorruptCheckpoint as error:
                logger.error("%s; the log is begun anew", error)
                stored_id = None
            if stored_id == topic_id:
                return self._open(topic_partition, topic_id, config, self.last_shutdown is Shutdown.CLEAN)
            logger.warning("%s belongs to topic id %s, not %s: it is deleted", folder, stored_id, topic_id)
            self._rename_away(topic_partition, config.file_delete_delay_ms)
        # What an older log of that name left in the checkpoints means nothing here.
        self._forget_checkpoints(topic_partition)
        return self._open(topic_partition, topic_id, config, clean=True)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        """As of the last checkpoint before the start; 0 if it is not in it."""
        return self.high_watermarks.get(topic_partition, 0)

    def _open(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig, clean: bool
    ) -> PartitionLog:
        log = PartitionLog(
            self.directory / str(topic_partition),
            topic_partition,
            topic_id,
            config,
            self._clock,
            self._disk,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start_offset=self._log_starts.get(topic_partition, 0),
            clean=clean,
            files=self._files,
            reaper=self._reaper,
            randomness=self._randomness,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )
        self.logs[topic_partition] = log
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log out of service at once: its folder is renamed, its files go after file.delete.delay.ms.

        Raises:
            OSError: the disk refuses.
        """
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return
        log.close(clean=False)
        self._rename_away(topic_partition, log.config.file_delete_delay_ms)
        self._forget_checkpoints(topic_partition)

    def _rename_away(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        tail = f".{random_uuid(self._randomness).hex}{DELETE_SUFFIX}"
        target = self.directory / (str(topic_partition)[: _FOLDER_NAME_MAX_BYTES - len(tail)] + tail)
        self._disk.rename(self.directory / str(topic_partition), target)
        self._disk.fsync_directory(self.directory)
        self._reaper.condemn(target, self._clock.now_ms() + delay_ms)

    def _forget_checkpoints(self, topic_partition: TopicPartition) -> None:
        for checkpoint in (self._recovery_points, self._log_starts, self.high_watermarks):
            checkpoint.pop(topic_partition, None)

    def due_deletions(self, now_ms: int) -> list[Path]:
        """Files and folders whose delay is over; hand them to `unlink` in a helper thread."""
        return self._reaper.due(now_ms)

    def unlink(self, paths: list[Path]) -> None:
        """Remove them for good. Blocks; any thread may do it. Raises OSError."""
        self._reaper.unlink(paths)

    # Checkpoints

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """What the checkpoint files should say now; call the result in a helper thread, one at a time.

        The result raises OSError.
        """
        # A copy: a helper thread may be adding one.
        logs = dict(self.logs)
        recovery_points = {key: log.recovery_point for key, log in logs.items()}
        write_starts = self.checkpoint_log_starts()
        watermarks = dict(high_watermarks)

        def write() -> None:
            write_offsets(self._disk, self.directory / RECOVERY_POINT_FILE, recovery_points)
            write_starts()
            write_offsets(self._disk, self.directory / HIGH_WATERMARK_FILE, watermarks)

        return write

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """The same for the log starts alone; the result may be called beside other checkpoints, in any order.

        What has been deleted by DeleteRecords must not come back: it is answered when this is done.
        """
        starts = {
            key: log.log_start_offset
            for key, log in self.logs.copy().items()
            if log.log_start_offset > (0 if log.config.remote_storage_enable else log.segments[0].base_offset)
        }
        self._starts_taken = taken = self._starts_taken + 1

        def write() -> None:
            with self._starts_lock:
                if taken > self._starts_written:
                    write_offsets(self._disk, self.directory / LOG_START_FILE, starts)
                    self._starts_written = taken

        return write

    def close(
        self, high_watermarks: Mapping[TopicPartition, int], *, broker_epoch: int = -1, clean: bool = True
    ) -> None:
        """Close all logs; a clean close leaves the mark, unless a log could not be flushed. Blocks."""
        clean = clean and self.state is not DirectoryState.OFFLINE
        flushed = True
        for log in self.logs.values():
            try:
                log.close(clean)
            except (LogWriteFailed, OSError) as error:
                logger.error("%s: the next start will recover it: %s", log.directory, error)
                flushed = False
        try:
            if clean:
                self.checkpoint(high_watermarks)()
                if flushed:
                    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
                    replace_file(self._disk, self.directory / CLEAN_SHUTDOWN_FILE, content.encode())
        except OSError as error:
            logger.error("%s: no clean end: %s", self.directory, error)
        finally:
            self._lock.release()

    # The disk's health

    def write_failed(self, error: LogWriteFailed) -> DirectoryState:
        """Note that a log of this directory could not write; says what the directory is good for now."""
        if not error.disk_full:
            self.state = DirectoryState.OFFLINE
        elif self.state is DirectoryState.ONLINE:
            self.state = DirectoryState.FULL
        self.accepts_writes = False
        logger.error("%s is %s: %s", self.directory, self.state.value, error)
        return self.state

    def check_space(self) -> DirectoryState:
        """Let a full directory take writes again once `log.dir.min.free.bytes` are free. Costs one statvfs."""
        if self.state is DirectoryState.FULL:
            try:
                free = self._disk.free_bytes(self.directory)
            except OSError as error:
                return self.write_failed(
                    LogWriteFailed(f"asking {self.directory} for its free space", error, self.directory)
                )
            if free >= max(self._min_free_bytes, 1):
                logger.warning("%s has %d bytes free: writes are taken again", self.directory, free)
                self.state, self.accepts_writes = DirectoryState.ONLINE, True
        return self.state


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition that a folder of this name is for; None for any other folder or file."""
    match = _FOLDER_NAME.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None
