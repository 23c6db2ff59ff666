"""One data directory of a broker: whose it is, how it was left, what its disk lets us do, and the logs in it.

```
DIR/lock                              held as long as the broker lives
DIR/meta.properties                   cluster.id, node.id, directory.id, version=1
DIR/known-directories                 the broker's other directories; not there when it has only one
DIR/boot-id                           of the host's boot in which the directory was last used
DIR/.kafka_cleanshutdown              {"version":0,"brokerEpoch":n}; there only between a clean stop and the next start
DIR/recovery-point-offset-checkpoint
DIR/log-start-offset-checkpoint
DIR/cleaner-offset-checkpoint         how far logs have been compacted; not there before one was
DIR/replication-offset-checkpoint     high watermarks
DIR/<topic>-<partition>/              a log
DIR/<topic>-<partition>.<32 hex digits>-delete/   a deleted log, until its files go
DIR/<topic>-<partition>.<32 hex digits>-future/   one on its way from another directory (`future_logs.py`)
```
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.config import TopicConfig
from appliance.base.disk import Disk
from appliance.base.ids import TopicPartition
from appliance.base.randomness import Randomness, random_uuid
from appliance.log.checkpoints import PARTITION_METADATA_FILE, CorruptCheckpoint, read_partition_metadata
from appliance.log.directory_checkpoints import CheckpointedDirectory
from appliance.log.directory_identity import (
    DirectoryLock,
    Shutdown,
    mark_clean,
    note_boot,
    read_identity,
    take_identity,
    take_last_shutdown,
)
from appliance.log.errors import SPACE_ERRORS, LogWriteFailed
from appliance.log.known_directories import read_known_directories, write_known_directories
from appliance.log.open_files import OpenFiles, Reaper
from appliance.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

DELETE_SUFFIX = "-delete"
CLOSED_TOGETHER_MIN = 200
"""From so many logs on, a clean end flushes the whole file system once, with what others have written to it."""
_FOLDER_NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")
_FOLDER_NAME_MAX_BYTES = 255


class DirectoryState(Enum):
    """What the disk lets us do."""

    ONLINE = "online"
    FULL = "full"
    """Reads go on; writes are refused until `log.dir.min.free.bytes` are free."""
    OFFLINE = "offline"
    """The disk has lied or failed: nothing is believed until a restart."""


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition that a folder of this name is for; None for any other folder or file."""
    match = _FOLDER_NAME.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


class LogDirectory(CheckpointedDirectory):
    """Begins unusable. `open` looks who it is, `begin_use` takes it into service; then it opens and makes logs."""

    def __init__(
        self,
        path: Path,
        *,
        broker_id: int,
        cluster_id: str,
        clock: Clock,
        disk: Disk,
        randomness: Randomness,
        files: OpenFiles,
        reaper: Reaper,
        min_free_bytes: int,
        producer_id_expiration_ms: int,
        producers_max: int,
    ) -> None:
        super().__init__(path, disk)
        self.directory_id: uuid.UUID | None = None
        """None while it is new, and when it could never be read."""
        self.known: dict[uuid.UUID, str] = {}
        """The broker's directories, as this one remembers them."""
        self.last_shutdown = Shutdown.EMPTY
        self._boot_id = ""
        self.state = DirectoryState.OFFLINE
        self.reason = ""
        """Why it is not online; empty while it is."""
        self.total_bytes = -1
        self.free_bytes = -1
        """Of the file system, at the last look; -1 before it."""
        self.coming = 0
        """Logs that are being made here."""
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._clock = clock
        self._randomness = randomness
        self._files = files
        self._reaper = reaper
        self._min_free_bytes = min_free_bytes
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._producers_max = producers_max
        self._lock: DirectoryLock | None = None

    def __repr__(self) -> str:
        return f"LogDirectory({self.path}, {self.state.value}, {len(self.logs)} logs)"

    @property
    def is_usable(self) -> bool:
        """Whether logs may be read here; written too, unless it is full."""
        return self.state is not DirectoryState.OFFLINE

    @property
    def refusal(self) -> str:
        """Why nothing is written here now; empty while it may be."""
        if self.state is DirectoryState.ONLINE:
            return ""
        return f"the data directory {self.path} is {self.state.value}"

    # Who it is

    def open(self, lock: Callable[[Path], DirectoryLock]) -> None:
        """Lock it and read who it is; nothing in it is changed.

        Raises:
            OSError, CorruptCheckpoint: it cannot be used.
            UserError: exit code 3: it is locked, or belongs to another broker or cluster.
        """
        self._lock = lock(self.path)
        self.directory_id = read_identity(self.disk, self.path, self._cluster_id, self._broker_id)
        self.known = read_known_directories(self.disk, self.path)

    def begin_use(self, boot_id: str) -> None:
        """Take it into service: a new one gets an id, the mark of a clean end goes, checkpoints are read.

        The boot is noted at once only where nothing can be missing; else by `loaded`.

        Raises:
            OSError: it cannot be used.
        """
        disk = self.disk
        if self.directory_id is None:
            self.directory_id = take_identity(disk, self.path, self._cluster_id, self._broker_id, self._randomness)
        else:
            self.last_shutdown = take_last_shutdown(disk, self.path, boot_id)
        self.state, self.reason = DirectoryState.ONLINE, ""
        self._boot_id = boot_id
        if self.last_shutdown in (Shutdown.CLEAN, Shutdown.SAME_BOOT):
            self._note_boot()
        disk.fsync_directory(self.path)
        self._read_checkpoints()
        self._look_at_space()

    def loaded(self) -> None:
        """Its logs are recovered, and the controller, which is told before that, knows what may be missing.

        Were the boot noted before, a process that ended meanwhile would have hidden it from both. Raises OSError.
        """
        if self.last_shutdown not in (Shutdown.CLEAN, Shutdown.SAME_BOOT):
            self._note_boot()

    def _note_boot(self) -> None:
        try:
            note_boot(self.disk, self.path, self._boot_id)
        except OSError as error:
            # A full disk can be read from. What stands there is an older boot, after which more is checked.
            if error.errno not in SPACE_ERRORS:
                raise
            self.state, self.reason = DirectoryState.FULL, f"noting the boot in {self.path}: {error.strerror}"

    def remember(self, known: Mapping[uuid.UUID, str]) -> None:
        """Note the broker's directories, if they are others than the list names. Raises OSError."""
        if self.known != known:
            write_known_directories(self.disk, self.path, known)
            self.known = dict(known)

    def release(self) -> None:
        """Give the lock back."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # What the disk lets us do

    def fail(self, reason: str) -> None:
        """Nothing in it is believed any more until a restart."""
        if self.state is DirectoryState.OFFLINE and self.reason:
            return
        logger.error("the data directory %s is offline: %s", self.path, reason)
        self.state, self.reason = DirectoryState.OFFLINE, reason

    def write_failed(self, error: LogWriteFailed) -> None:
        """A write or flush failed: the directory is full, or it is offline from now on."""
        if not error.disk_full:
            self.fail(str(error))
        elif self.state is DirectoryState.ONLINE:
            self.state, self.reason = DirectoryState.FULL, str(error)
            logger.error("the data directory %s is full: %s", self.path, error)

    def check_space(self) -> LogWriteFailed | None:
        """Look how much is free; a full one takes writes again once `log.dir.min.free.bytes` are. May block.

        Returns the failure of a disk that does not answer any more, for `write_failed` on the loop.
        """
        if not self.is_usable:
            return None
        try:
            self._look_at_space()
        except OSError as error:
            return LogWriteFailed(f"asking {self.path} for its free space", error, self.path, cut_back=False)
        if self.state is DirectoryState.FULL and self.free_bytes >= max(self._min_free_bytes, 1):
            logger.warning("%s has %d bytes free: writes are taken again", self.path, self.free_bytes)
            self.state, self.reason = DirectoryState.ONLINE, ""
        return None

    def _look_at_space(self) -> None:
        self.total_bytes = self.disk.total_bytes(self.path)
        self.free_bytes = self.disk.free_bytes(self.path)

    # Logs

    def find(self) -> Iterator[TopicPartition]:
        """The partitions of which a log lies here; deleted ones are noted as what has to go. Raises OSError."""
        for name in self.disk.listdir(self.path):
            if name.endswith(DELETE_SUFFIX):
                self._reaper.condemn(self.path / name, self._clock.now_ms())
                continue
            topic_partition = parse_folder_name(name)
            if topic_partition is not None:
                yield topic_partition

    def stored_topic_id(self, topic_partition: TopicPartition) -> uuid.UUID | None:
        """Whose log lies here; None if that is none of a log's folders. Raises OSError."""
        name = str(topic_partition)
        try:
            topic_id = read_partition_metadata(self.disk, f"{self.path}/{name}/{PARTITION_METADATA_FILE}")
        except (CorruptCheckpoint, NotADirectoryError) as error:
            logger.error("%s is passed over: %s", name, error)
            return None
        if topic_id is None:
            logger.error("%s is passed over: it has no %s", name, PARTITION_METADATA_FILE)
        return topic_id

    def holds(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a folder for it. Raises OSError."""
        return topic_partition in self.logs or self.disk.exists(self.path / str(topic_partition))

    def open_log(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        *,
        is_new: bool = False,
        is_there: bool = False,
    ) -> PartitionLog:
        """Open a log that lies here, or begin one. Blocks. Raises OSError.

        `is_there`: its partition.metadata was just read, and names this topic id.
        """
        log = self._log_in(
            str(topic_partition),
            topic_partition,
            topic_id,
            config,
            self._files,
            clean=is_new or self.last_shutdown is Shutdown.CLEAN,
            stored_topic_id=topic_id if is_there else None,
        )
        self.logs[topic_partition] = log
        return log

    def _log_in(
        self,
        name: str,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        files: OpenFiles,
        *,
        clean: bool = False,
        stored_topic_id: uuid.UUID | None = None,
    ) -> PartitionLog:
        log = PartitionLog(
            self.path / name,
            topic_partition,
            topic_id,
            config,
            self._clock,
            self.disk,
            recovery_point=self._recovery_points.get(topic_partition, 0),
            log_start_offset=self._log_starts.get(topic_partition, 0),
            cleaned_offset=self._cleaned.get(topic_partition, -1),
            clean=clean,
            files=files,
            reaper=self._reaper,
            randomness=self._randomness,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            producers_max=self._producers_max,
            stored_topic_id=stored_topic_id,
        )
        log.before_cut = self._store_recovery_points
        return log

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """Open the log, or begin it if there is none. A folder of another topic of that name is deleted later.

        Raises:
            OSError: the disk refuses.
        """
        folder = self.path / str(topic_partition)
        if self.disk.exists(folder):
            try:
                stored_id = read_partition_metadata(self.disk, folder / PARTITION_METADATA_FILE)
            except CorruptCheckpoint as error:
                logger.error("%s; the log is begun anew", error)
                stored_id = None
            if stored_id == topic_id:
                return self.open_log(topic_partition, topic_id, config, is_there=True)
            logger.warning("%s belongs to topic id %s, not %s: it is deleted", folder, stored_id, topic_id)
            self.rename_away(topic_partition, config.file_delete_delay_ms)
        # What an older log of that name left in the checkpoints means nothing here, also after a crash.
        self._forget_checkpoints(topic_partition)
        if topic_partition in self._stored_keys:
            self._store_recovery_points()
            self.checkpoint_log_starts()()
        return self.open_log(topic_partition, topic_id, config, is_new=True)

    def delete(self, log: PartitionLog) -> None:
        """Take a log out of service at once: its folder is renamed, its files go after file.delete.delay.ms.

        Raises:
            OSError: the disk refuses.
        """
        self.logs.pop(log.topic_partition, None)
        log.close(clean=False)
        # What lies in a failed directory is found to be nobody's when it comes back.
        if self.is_usable:
            self.rename_away(log.topic_partition, log.config.file_delete_delay_ms)
        self._forget_checkpoints(log.topic_partition)

    # Logs on their way to here

    def open_future(
        self, topic_partition: TopicPartition, name: str, topic_id: uuid.UUID, config: TopicConfig
    ) -> PartitionLog:
        """Open or begin a future log in the folder of this name. Blocks. Raises OSError, CorruptCheckpoint.

        A helper thread fills it: its files are counted for themselves, so that nobody else closes them.
        """
        future = self._log_in(name, topic_partition, topic_id, config, OpenFiles(self.disk))
        self.futures[topic_partition] = future
        return future

    def adopt(self, log: PartitionLog) -> None:
        """A log has come here for good."""
        log.before_cut = self._store_recovery_points
        self.logs[log.topic_partition] = log

    def give_up(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        """A log has gone from here. Raises OSError."""
        self._forget_checkpoints(topic_partition)
        self.rename_away(topic_partition, delay_ms)

    def put_away(self, name: str) -> None:
        """Let the folder of a future log go. Raises OSError."""
        target = self.path / (name.removesuffix("-future") + DELETE_SUFFIX)
        self.disk.rename(self.path / name, target)
        self.disk.fsync_directory(self.path)
        self._reaper.condemn(target, self._clock.now_ms())

    def rename_away(self, topic_partition: TopicPartition, delay_ms: int) -> None:
        """Let a folder be nobody's at once, and go later. Raises OSError."""
        tail = f".{random_uuid(self._randomness).hex}{DELETE_SUFFIX}"
        target = self.path / (str(topic_partition)[: _FOLDER_NAME_MAX_BYTES - len(tail)] + tail)
        self.disk.rename(self.path / str(topic_partition), target)
        self.disk.fsync_directory(self.path)
        self._reaper.condemn(target, self._clock.now_ms() + delay_ms)

    # The end

    @property
    def _closes_together(self) -> bool:
        """Whether one flush of the file system does for all logs: each of them would need several."""
        return self.disk.can_sync_all and len(self.logs) >= CLOSED_TOGETHER_MIN

    def close_log(self, log: PartitionLog, clean: bool) -> bool:
        """Close one log; whether everything in it is durable. Blocks; any thread may do it."""
        try:
            log.close(clean and self.is_usable, durable=not self._closes_together)
        except (LogWriteFailed, OSError) as error:
            logger.error("%s: the next start will recover it: %s", log.directory, error)
            return False
        return True

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int, *, flushed: bool) -> None:
        """A clean end of closed logs: the last checkpoint, and the mark if all of them were flushed. Blocks."""
        if not self.is_usable:
            return
        try:
            if self._closes_together:
                self.disk.sync_all(self.path)
            self.checkpoint(high_watermarks)()
            if flushed:
                mark_clean(self.disk, self.path, broker_epoch)
        except OSError as error:
            logger.error("%s: no clean end: %s", self.path, error)
