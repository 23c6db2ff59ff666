"""All logs of one broker, in one data directory or several.

A new log goes to the directory that holds the fewest. A directory whose disk fails goes offline alone; see
`log_directory.py` for what is in one, and `known_directories.py` for what happens to logs that cannot be found.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from appliance.base.clock import Clock
from appliance.base.config import TopicConfig
from appliance.base.disk import Disk
from appliance.base.errors import InvariantBroken, UserError, invariant
from appliance.base.ids import TopicPartition, uuid_to_text
from appliance.base.randomness import Randomness, SystemRandomness
from appliance.log.checkpoints import CorruptCheckpoint
from appliance.log.directory_identity import FOLDER_EXIT_CODE, DirectoryLock, Shutdown, host_boot_id
from appliance.log.errors import LogUnavailable, LogWriteFailed
from appliance.log.future_logs import FutureLogs, after_crash
from appliance.log.log_directory import DirectoryState, LogDirectory, parse_folder_name
from appliance.log.open_files import OPEN_SEGMENTS_MAX, OpenFiles, Reaper
from appliance.log.partition_log import PRODUCER_ID_EXPIRATION_MS, PartitionLog
from appliance.log.producer_state import PRODUCERS_MAX
from appliance.log.progress import Progress
from appliance.log.side_by_side import for_each

__all__ = ["DirectoryLock", "DirectoryState", "LogManager", "Shutdown", "parse_folder_name"]

logger = logging.getLogger(__name__)


class LogManager:
    """Opens, creates, deletes and checkpoints the logs of a broker."""

    def __init__(
        self,
        directories: Path | Sequence[Path],
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
        producers_max: int = PRODUCERS_MAX,
        recovery_threads: int = 0,
        writeback_bytes: int = 0,
        lock: Callable[[Path], DirectoryLock] = DirectoryLock,
    ) -> None:
        """Lock the directories and read what they say about themselves; a new one gets its meta.properties.

        One that cannot be used is offline, and the others serve.

        Args:
            recovery_threads: for each directory, at the start and at the end; 0 does all in the caller's thread.
            writeback_bytes: after so many bytes of a segment the kernel is to write them; 0 leaves that to itself.

        Raises:
            UserError: exit code 3: no folder is usable, or one is locked or belongs to another broker or cluster.
        """
        paths = [directories] if isinstance(directories, Path) else list(dict.fromkeys(directories))
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.not_found: dict[TopicPartition, uuid.UUID] = {}
        """Topic ids of the partitions that were this broker's at the start and of which there was no log."""
        self.files = OpenFiles(disk, max_open_segments)
        self.files.writeback.step_bytes = writeback_bytes
        self.futures = FutureLogs(self)
        """Logs on their way from one directory to another."""
        self.preferred: dict[TopicPartition, Path] = {}
        """Where logs are to be begun that are not there yet."""
        self.disk = disk
        self.randomness = randomness or SystemRandomness()
        self._clock = clock
        self._recovery_threads = recovery_threads
        self._reaper = Reaper(disk)
        self._placing = threading.Lock()
        self._twice: dict[TopicPartition, str] = {}
        """Logs of which nobody can tell in which of two directories they are, and the error that says so."""
        self.directories = [
            LogDirectory(
                path,
                broker_id=broker_id,
                cluster_id=cluster_id,
                clock=clock,
                disk=disk,
                randomness=self.randomness,
                files=self.files,
                reaper=self._reaper,
                min_free_bytes=min_free_bytes,
                producer_id_expiration_ms=producer_id_expiration_ms,
                producers_max=producers_max,
            )
            for path in paths
        ]
        self.known: dict[uuid.UUID, str] = {}
        """Every directory that this broker's logs may lie in, and where it was."""
        try:
            self._begin(boot_id if boot_id is not None else host_boot_id(), lock)
        except BaseException:
            self._release()
            raise

    # The start of the directories

    def _begin(self, boot_id: str, lock: Callable[[Path], DirectoryLock]) -> None:
        opened = self._attempt(self.directories, lambda directory: directory.open(lock))
        for directory in opened:
            self.known.update(directory.known)
        found = {directory.directory_id for directory in opened}
        missing = {place: directory_id for directory_id, place in self.known.items() if directory_id not in found}
        usable = []
        for directory in opened:
            gone = missing.get(str(directory.path)) if directory.directory_id is None else None
            if gone is None:
                usable.append(directory)
            else:
                # Nothing may be written into a mount point whose disk is not there.
                directory.fail(f"it is empty, but data directory {uuid_to_text(gone)} lay there: is its disk mounted?")
        begun = self._attempt(usable, lambda directory: directory.begin_use(boot_id))
        self.known.update({d.directory_id: str(d.path) for d in begun if d.directory_id is not None})
        if len(self.known) > 1:
            begun = self._attempt(begun, lambda directory: directory.remember(self.known))
        for directory in self.directories:
            if directory.directory_id is None:
                directory.directory_id = missing.get(str(directory.path))
        if not begun:
            first = self.directories[0]
            raise UserError(f"cannot use the data folder {first.path}: {first.reason}", FOLDER_EXIT_CODE)
        configured = {directory.directory_id for directory in self.directories}
        for directory_id, place in self.known.items():
            if directory_id not in configured:
                logger.error(
                    "data directory %s, last at %s, is none of log.dirs: partitions in it cannot be served",
                    uuid_to_text(directory_id),
                    place,
                )

    @staticmethod
    def _attempt(directories: Iterable[LogDirectory], step: Callable[[LogDirectory], None]) -> list[LogDirectory]:
        """Take a step with each; returns those that could. The others are offline."""
        able = []
        for directory in directories:
            try:
                step(directory)
                able.append(directory)
            except OSError as error:
                directory.fail(error.strerror or str(error))
            except CorruptCheckpoint as error:
                directory.fail(str(error))
        return able

    def _release(self) -> None:
        for directory in self.directories:
            directory.release()

    @property
    def usable(self) -> list[LogDirectory]:
        """The directories that are not offline."""
        return [directory for directory in self.directories if directory.is_usable]

    @property
    def directory_ids(self) -> list[uuid.UUID]:
        """Of all directories that its logs may lie in, those that cannot be used now too."""
        return sorted(self.known.keys() | {d.directory_id for d in self.directories if d.directory_id is not None})

    @property
    def offline_directory_ids(self) -> list[uuid.UUID]:
        """Those of them that cannot be used now."""
        return sorted(set(self.directory_ids) - {directory.directory_id for directory in self.usable})

    @property
    def last_shutdown(self) -> Shutdown:
        """The worst of how the usable directories were left; EMPTY when all of them are new."""
        found = [directory.last_shutdown for directory in self.usable]
        for worst in (Shutdown.UNCLEAN, Shutdown.SAME_BOOT, Shutdown.CLEAN):
            if worst in found:
                return worst
        return Shutdown.EMPTY

    def directory_of(self, folder: Path) -> LogDirectory:
        """The directory that a log's folder lies in, or that is meant itself."""
        if len(self.directories) == 1:
            return self.directories[0]
        for directory in self.directories:
            if directory.path in (folder.parent, folder):
                return directory
        raise InvariantBroken(f"{folder} lies in none of the data directories")

    # Logs

    def load_all(
        self,
        config_of: Callable[[str], TopicConfig],
        topic_id_of: Callable[[str], uuid.UUID | None] = lambda topic: None,
    ) -> dict[TopicPartition, PartitionLog]:
        """Open every log in the directories, recovering what was not flushed. Blocks.

        Folders without a usable partition.metadata are passed over and stay where they are. Of two logs of one
        partition that belong to different topics, the one of the topic that there is now counts; `topic_id_of` tells
        which. When both belong to it, none is opened.

        Raises:
            UserError: no directory can be used any more (exit code 3).
        """
        found: dict[TopicPartition, list[LogDirectory]] = {}
        for directory in self.usable:
            try:
                for topic_partition in directory.find():
                    found.setdefault(topic_partition, []).append(directory)
                self.futures.look(directory)
            except OSError as error:
                directory.fail(f"listing it: {error.strerror}")
        groups: dict[Path, list[tuple[LogDirectory, TopicPartition]]] = {d.path: [] for d in self.directories}
        for topic_partition, holders in found.items():
            if topic_partition in self.logs:
                continue
            holder = self._holder(topic_partition, holders, config_of, topic_id_of)
            if holder is not None:
                groups[holder.path].append((holder, topic_partition))
        progress = Progress("opened", sum(map(len, groups.values())), self._clock)

        def open_one(item: tuple[LogDirectory, TopicPartition]) -> None:
            directory, topic_partition = item
            if not directory.is_usable:
                return
            try:
                topic_id = directory.stored_topic_id(topic_partition)
                if topic_id is not None:
                    directory.open_log(topic_partition, topic_id, config_of(topic_partition.topic), is_there=True)
            except OSError as error:
                directory.fail(f"opening {topic_partition}: {error.strerror or error}")
            progress.one_more()

        for_each(list(groups.values()), self._recovery_threads, open_one)
        progress.tell_end()
        self._attempt(self.usable, lambda directory: directory.loaded())
        for directory in self.directories:
            if directory.is_usable:
                self.logs.update(directory.logs)
            else:
                for log in directory.logs.values():
                    log.close(clean=False)
                directory.logs.clear()
        if not self.usable:
            reasons = "; ".join(f"{directory.path}: {directory.reason}" for directory in self.directories)
            raise UserError(f"no data directory can be used: {reasons}", FOLDER_EXIT_CODE)
        self.logs = {key: self.logs[key] for key in sorted(self.logs)}
        return self.logs

    def _holder(
        self,
        topic_partition: TopicPartition,
        holders: list[LogDirectory],
        config_of: Callable[[str], TopicConfig],
        topic_id_of: Callable[[str], uuid.UUID | None],
    ) -> LogDirectory | None:
        """Which of the directories has the log that counts; None if that cannot be told."""
        if len(self.known) > 1:
            try:
                delay_ms = config_of(topic_partition.topic).file_delete_delay_ms
                left, reason = after_crash(topic_partition, holders, self.usable, delay_ms)
            except OSError as error:
                left, reason = [], f"{topic_partition} cannot be looked at: {error.strerror or error}"
            if not left:
                self._twice[topic_partition] = reason
                logger.error("%s", reason)
                for directory in holders:
                    directory.unopened.add(topic_partition)
                return None
            holders = left
        return holders[0] if len(holders) == 1 else self._choose(topic_partition, holders, topic_id_of)

    def _choose(
        self,
        topic_partition: TopicPartition,
        holders: Sequence[LogDirectory],
        topic_id_of: Callable[[str], uuid.UUID | None],
    ) -> LogDirectory | None:
        """Which of several directories has the log that counts; None if that cannot be told."""
        wanted = topic_id_of(topic_partition.topic)
        stored = [(directory, directory.stored_topic_id(topic_partition)) for directory in holders]
        matching = [directory for directory, topic_id in stored if topic_id is not None and topic_id == wanted]
        if len(matching) == 1:
            for directory, topic_id in stored:
                if directory is not matching[0]:
                    directory.unopened.add(topic_partition)
                    logger.error(
                        "%s/%s belongs to topic id %s, which there is no more; it is left alone",
                        directory.path,
                        topic_partition,
                        topic_id,
                    )
            return matching[0]
        places = " and ".join(str(directory.path / str(topic_partition)) for directory in holders)
        self._twice[topic_partition] = (
            f"{topic_partition} lies in two data directories, {places}: none is opened until one of them is removed"
        )
        logger.error("%s", self._twice[topic_partition])
        for directory in holders:
            directory.unopened.add(topic_partition)
        return None

    def expect(self, partitions: Iterable[tuple[TopicPartition, uuid.UUID]]) -> None:
        """After `load_all`: what the metadata gave to this broker before it started. Of that, nothing is begun anew
        while it may lie in a directory that is not there.
        """
        self.not_found = {
            topic_partition: topic_id
            for topic_partition, topic_id in partitions
            if (log := self.logs.get(topic_partition)) is None or log.topic_id != topic_id
        }

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> PartitionLog:
        """Open the log, or begin it if there is none. A folder of another topic of that name is deleted later.

        Blocks; a helper thread may do it, for one partition at a time.

        Raises:
            LogUnavailable: it lies, or may lie, where it cannot be used; trying again does not help.
            LogWriteFailed: the disk refuses.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            invariant(log.topic_id == topic_id, f"{log!r} belongs to another topic of that name")
            return log
        if topic_partition in self._twice:
            raise LogUnavailable(self._twice[topic_partition])
        directory = self._place(topic_partition, topic_id)
        try:
            log = directory.create(topic_partition, topic_id, config)
        except OSError as error:
            folder = directory.path / str(topic_partition)
            raise LogWriteFailed(f"creating {folder}", error, folder) from error
        finally:
            with self._placing:
                directory.coming -= 1
        self.logs[topic_partition] = log
        return log

    def _place(self, topic_partition: TopicPartition, topic_id: uuid.UUID) -> LogDirectory:
        """The directory for a log, in which a place is taken: where it lies already, else the one with the fewest."""
        usable = self.usable
        if not usable:
            raise LogUnavailable("every data directory is offline")
        holders = [
            d for d in usable if len(usable) > 1 and topic_partition not in d.unopened and d.holds(topic_partition)
        ]
        if not holders and self.not_found.get(topic_partition) == topic_id and (away := self._away()):
            raise LogUnavailable(f"{topic_partition} is in no data directory that can be used; it may lie in {away}")
        with self._placing:
            # A full directory takes no more; then Kafka's rule, and where there is most room.
            preferred = self.preferred.pop(topic_partition, None)
            directory = min(
                holders or [d for d in usable if d.path == preferred] or usable,
                key=lambda d: (d.state is not DirectoryState.ONLINE, len(d.logs) + d.coming, -d.free_bytes),
            )
            directory.coming += 1
        return directory

    def _away(self) -> str:
        """The directories in which logs may lie and that cannot be used now; empty when there is none."""
        offline = self.offline_directory_ids
        away = [f"{uuid_to_text(directory_id)} ({self.known.get(directory_id, '')})" for directory_id in offline]
        if not away and all(directory.last_shutdown is Shutdown.EMPTY for directory in self.usable):
            # Nobody is left who would remember the ids.
            away = [str(directory.path) for directory in self.directories if not directory.is_usable]
        return ", ".join(away)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int:
        """As of the last checkpoint before the start; 0 if it is not in it."""
        log = self.logs.get(topic_partition)
        return 0 if log is None else self.directory_of(log.directory).high_watermarks.get(topic_partition, 0)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log out of service at once: its folder is renamed, its files go after file.delete.delay.ms.

        Raises:
            OSError: the disk refuses.
        """
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            self.directory_of(log.directory).delete(log)
        self.futures.cancel(topic_partition)

    def due_deletions(self, now_ms: int) -> list[Path]:
        """Files and folders whose delay is over; hand them to `unlink` in a helper thread."""
        return self._reaper.due(now_ms)

    def unlink(self, paths: list[Path]) -> None:
        """Remove them for good. Blocks; any thread may do it. Raises OSError."""
        self._reaper.unlink(paths)

    # Checkpoints

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> Callable[[], list[LogWriteFailed]]:
        """What the checkpoint files should say now; call the result in a helper thread, one at a time.

        The result returns the directories' failures, for `write_failed`.
        """
        writes = [(directory, directory.checkpoint(high_watermarks)) for directory in self.usable]

        def write() -> list[LogWriteFailed]:
            failures = []
            for directory, write_one in writes:
                try:
                    write_one()
                except OSError as error:
                    failures.append(
                        LogWriteFailed(f"writing the checkpoints of {directory.path}", error, directory.path)
                    )
            return failures

        return write

    def checkpoint_log_starts(self) -> Callable[[], None]:
        """The same for the log starts alone; the result may be called beside other checkpoints, in any order.

        What has been deleted by DeleteRecords must not come back: it is answered when this is done. The result raises
        OSError.
        """
        writes = [directory.checkpoint_log_starts() for directory in self.usable]

        def write() -> None:
            for write_one in writes:
                write_one()

        return write

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, int],
        *,
        broker_epoch: int = -1,
        clean: bool = True,
        working: Callable[[], None] = lambda: None,
    ) -> None:
        """Close all logs; a clean close leaves the mark in each directory whose logs could be flushed. Blocks.

        `working` is called now and then, by any thread, while this goes on.
        """
        progress = Progress("closed", len(self.logs), self._clock, working)
        working()
        unflushed: set[Path] = set()

        def close_one(item: tuple[LogDirectory, PartitionLog]) -> None:
            directory, log = item
            if not directory.close_log(log, clean):
                unflushed.add(directory.path)
            progress.one_more()

        groups = [[(directory, log) for log in directory.logs.values()] for directory in self.directories]
        self.futures.close()
        try:
            for_each(groups, self._recovery_threads, close_one)
            working()
            for directory in self.directories if clean else ():
                directory.close(high_watermarks, broker_epoch, flushed=directory.path not in unflushed)
        finally:
            self._release()

    # The disks' health

    def write_failed(self, error: LogWriteFailed) -> LogDirectory:
        """Note that a log could not be written or flushed; returns its directory, which is full or offline now."""
        directory = self.directory_of(error.folder)
        directory.write_failed(error)
        return directory

    def check_space(self) -> list[LogWriteFailed]:
        """Look how much is free in each directory. Blocks. Returns failures, for `write_failed` on the loop."""
        return [failed for directory in self.directories if (failed := directory.check_space()) is not None]
