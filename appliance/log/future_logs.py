"""Logs on their way from one data directory of a broker to another (KIP-113).

```
FROM/<topic>-<partition>/                          the log, in use
FROM/<topic>-<partition>/moving-to                 the id of the directory TO, from just before the end of the way
TO/<topic>-<partition>.<32 hex digits>-future/     what is there of it
```

The future log is filled beside the one in use, as a follower's is. When both are the same, `swap` gives it the name of
a log: that rename is the moment, and it is durable before anything is appended behind it. The other folder goes then.

A crash leaves one of three things. Without the name, the log in use is what it was, and the way goes on. With it,
`moving-to` says which of two folders of that name is the log. And where the directory that `moving-to` names cannot be
used, nobody can tell: then the log is not opened.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.base.config import TopicConfig
from appliance.base.ids import TopicPartition, uuid_from_text, uuid_to_text
from appliance.base.randomness import Randomness, random_uuid
from appliance.log import reading
from appliance.log.checkpoints import CorruptCheckpoint, read_file, replace_file
from appliance.log.errors import LogWriteFailed
from appliance.log.partition_log import PartitionLog
from appliance.log.producer_snapshot import CorruptSnapshot
from appliance.records.batch import parse_header

if TYPE_CHECKING:
    from appliance.log.log_directory import LogDirectory
    from appliance.log.log_manager import LogManager

logger = logging.getLogger(__name__)

FUTURE_SUFFIX = "-future"
MOVING_FILE = "moving-to"
_FOLDER_NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)\.[0-9a-f]{32}-future")
_FOLDER_NAME_MAX_BYTES = 255


def future_name(topic_partition: TopicPartition, randomness: Randomness) -> str:
    """A folder's name, as Apache Kafka makes them."""
    return f"{topic_partition}.{random_uuid(randomness).hex}{FUTURE_SUFFIX}"


def fits_in_a_name(topic_partition: TopicPartition) -> bool:
    """Whether a future log can have a folder: the longest names of topics leave no room."""
    return len(str(topic_partition)) + 1 + 32 + len(FUTURE_SUFFIX) <= _FOLDER_NAME_MAX_BYTES


def parse_future_name(name: str) -> TopicPartition | None:
    """Whose future log a folder of this name is for; None for any other."""
    match = _FOLDER_NAME.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def moving_to(directory: LogDirectory, topic_partition: TopicPartition) -> uuid.UUID | None:
    """The directory that a log was about to move to; None when it was not. Raises OSError."""
    content = read_file(directory.disk, directory.path / str(topic_partition) / MOVING_FILE)
    try:
        return None if content is None else uuid_from_text(content.decode("ascii").strip())
    except ValueError:
        # It is written whole or not at all; what else stands there is nobody's.
        return None


def after_crash(
    topic_partition: TopicPartition, holders: list[LogDirectory], usable: Iterable[LogDirectory], delay_ms: int
) -> tuple[list[LogDirectory], str]:
    """Which of the folders of a partition's name are its log, and why there is none that can be used.

    What has moved already goes away; what had not yet is no longer on its way. Raises OSError.
    """
    for directory in holders:
        target_id = moving_to(directory, topic_partition)
        if target_id is None:
            continue
        target = next((each for each in usable if each.directory_id == target_id), None)
        if target is None:
            return [], (
                f"{topic_partition} may have moved to data directory {uuid_to_text(target_id)}, which cannot be used; "
                f"if it is lost, remove {directory.path / str(topic_partition) / MOVING_FILE}"
            )
        if target not in holders:
            forget_move(directory, topic_partition)
            return holders, ""
        logger.warning("%s has moved to %s: what is left in %s goes", topic_partition, target.path, directory.path)
        directory.rename_away(topic_partition, delay_ms)
        return [each for each in holders if each is not directory], ""
    return holders, ""


def forget_move(directory: LogDirectory, topic_partition: TopicPartition) -> None:
    """The log in use stays what it is. Raises OSError."""
    folder = directory.path / str(topic_partition)
    try:
        directory.disk.unlink(folder / MOVING_FILE)
    except FileNotFoundError:
        return
    directory.disk.fsync_directory(folder)


@contextmanager
def blaming(directory: LogDirectory, doing: str) -> Iterator[None]:
    """What a disk refuses is told of that directory. Raises LogWriteFailed."""
    try:
        yield
    except OSError as error:
        raise LogWriteFailed(doing, error, directory.path) from error


def _begin_like(log: PartitionLog, future: PartitionLog) -> None:
    """Empty, from where the other begins on its disk, with what that one knows of the time before. Raises OSError."""
    base_offset = log.segments[0].base_offset
    epochs = [(epoch, start) for epoch, start in log.leader_epochs.entries if start < base_offset]
    producers = log.producer_snapshot_at(base_offset) or b""
    try:
        future.truncate_fully_and_start_at(base_offset, log.log_start_offset, epochs=epochs, producers=producers)
    except CorruptSnapshot as error:
        logger.warning("%s: its producers are read from the batches: %s", log.directory, error)
        future.truncate_fully_and_start_at(base_offset, log.log_start_offset, epochs=epochs)
    # Before anything is copied: a start that finds batches and not this would not know whose transactions were open.
    future.flush()


class FutureLog:
    """One log on its way. One thread at a time: the loop's, or the helper that it waits for."""

    def __init__(
        self, manager: LogManager, log: PartitionLog, source: LogDirectory, target: LogDirectory, future: PartitionLog
    ) -> None:
        self.log = log
        """The one in use, which will have the other's files."""
        self.future = future
        self.source, self.target = source, target
        self.is_busy = False
        """A helper thread is at work on it."""
        self._manager = manager
        self._stored_start = -1
        """The log start that the target's checkpoint has."""

    def __repr__(self) -> str:
        at = f"at {self.future.log_end_offset} of {self.log.log_end_offset}"
        return f"{self.log.topic_partition} on its way from {self.source.path} to {self.target.path}, {at}"

    @property
    def lag(self) -> int:
        """Offsets that are still to be copied."""
        return max(0, self.log.log_end_offset - self.future.log_end_offset)

    def copy(self, max_bytes: int, now_ms: int) -> int:
        """Copy some batches, at least one if there is one; how many bytes. Blocks.

        Raises:
            OffsetOutOfRange, CorruptBatch, SegmentGone: what is to be copied cannot be read.
            LogWriteFailed: the target's disk refuses.
        """
        copied = 0
        log, future = self.log, self.future
        # What DeleteRecords has taken from the first segment is copied with it: batches are whole.
        for batch in reading.iterate_batches(log.segments, future.log_end_offset, log.log_end_offset):
            data = bytearray(batch)
            future.stage_replicated(memoryview(data), parse_header(data), now_ms)
            copied += len(data)
            if copied >= max_bytes:
                break
        if copied:
            future.write_staged()
        for segment in future.segments[:-1]:
            segment.close()
        return copied

    def begin_anew(self) -> None:
        """From where the log in use begins now. Raises LogWriteFailed."""
        with blaming(self.target, f"beginning {self.future.directory} anew"):
            _begin_like(self.log, self.future)

    def cut_to(self, offset: int) -> None:
        """The log in use has taken another way from there. Raises LogWriteFailed, CorruptBatch."""
        with blaming(self.target, f"cutting {self.future.directory}"):
            self.future.truncate_to(offset)

    def prepare(self) -> None:
        """Make all durable that the target has to know of the log. Blocks.

        Raises:
            LogWriteFailed: one of the two disks refuses.
        """
        future, log = self.future, self.log
        if log.log_start_offset <= future.log_end_offset:
            future.raise_log_start(log.log_start_offset)
        if len(future.segments) > 1 and future.segments[0].base_offset < log.segments[0].base_offset:
            # Retention has not stood still meanwhile. What it renames here is durable with the flush.
            with blaming(self.target, f"deleting from {future.directory}"):
                future.delete_local_segments_below(log.segments[0].base_offset)
        future.cleaned_offset = min(log.cleaned_offset, future.log_end_offset)
        start = future.log_start_offset
        future.flush()
        with blaming(self.target, f"storing the checkpoints of {self.target.path}"):
            self.target.store_checkpoints()
        target_id = self.target.directory_id
        assert target_id is not None, "a directory in use has an id"
        with blaming(self.source, f"writing {MOVING_FILE} of {log.topic_partition}"):
            if moving_to(self.source, log.topic_partition) != target_id:
                replace_file(self._manager.disk, log.directory / MOVING_FILE, uuid_to_text(target_id).encode("ascii"))
        self._stored_start = start

    @property
    def may_swap(self) -> bool:
        """Whether nothing is lost if the future log takes over now: it has all, and as much of it is durable."""
        log, future = self.log, self.future
        return (
            not log.has_staged
            and not log.is_being_changed
            and future.log_end_offset == log.log_end_offset
            and future.recovery_point >= log.recovery_point
            and self._stored_start == log.log_start_offset == future.log_start_offset
            and future.cleaned_offset == log.cleaned_offset
        )

    def swap(self) -> None:
        """The future log is the log. Two renames, each durable at once.

        Raises:
            LogWriteFailed: of the target; the log in use is what it was.
        """
        log, topic_partition = self.log, self.log.topic_partition
        folder = self.target.path / str(topic_partition)
        disk = self._manager.disk
        try:
            disk.rename(self.future.directory, folder)
            disk.fsync_directory(self.target.path)
        except OSError as error:
            self._take_back(folder)
            raise LogWriteFailed(
                f"renaming {self.future.directory}", error, self.target.path, cut_back=False
            ) from error
        log.take_over(self.future, folder, self._manager.files)
        self.source.logs.pop(topic_partition, None)
        self.target.adopt(log)
        self._manager.futures.forget(topic_partition)
        try:
            self.source.give_up(topic_partition, log.config.file_delete_delay_ms)
        except OSError as error:
            # The next start finds what `moving-to` says.
            logger.error("%s: what has moved to %s cannot be put away: %s", self.source.path, folder, error)

    def _take_back(self, folder: Path) -> None:
        """After a failed rename: whatever is found later, it must not count."""
        disk = self._manager.disk
        try:
            if disk.exists(folder) and not disk.exists(self.future.directory):
                disk.rename(folder, self.future.directory)
        except OSError as error:
            logger.error("%s cannot be renamed back: %s", folder, error)
        try:
            forget_move(self.source, self.log.topic_partition)
        except OSError as error:
            self.source.fail(f"removing {MOVING_FILE} of {self.log.topic_partition}: {error.strerror}")


class FutureLogs:
    """Those of a broker. `LogManager.futures`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self.under_way: dict[TopicPartition, FutureLog] = {}
        self.found: dict[TopicPartition, tuple[LogDirectory, str]] = {}
        """What an earlier process has left, and in which folder."""

    def look(self, directory: LogDirectory) -> None:
        """Note what lies in a directory. Of two for one partition, one goes. Raises OSError."""
        for name in directory.disk.listdir(directory.path):
            if not name.endswith(FUTURE_SUFFIX):
                continue
            topic_partition = parse_future_name(name)
            if topic_partition is None or topic_partition in self.found:
                directory.put_away(name)
            else:
                self.found[topic_partition] = (directory, name)

    def begin(self, topic_partition: TopicPartition, target: LogDirectory, config: TopicConfig) -> FutureLog:
        """A future log in that directory: one that was found there, or a new one. Blocks; any thread may do it.

        Raises:
            LogWriteFailed: the disk refuses.
        """
        manager = self._manager
        log = manager.logs[topic_partition]
        source = manager.directory_of(log.directory)
        found = self.found.pop(topic_partition, None)
        future: PartitionLog | None = None
        if found is not None:
            with blaming(target, f"opening {found[1]}"):
                future = self._resume(log, found, target, config)
        if future is None:
            name = future_name(topic_partition, manager.randomness)
            with blaming(target, f"beginning {target.path / name}"):
                target.forget_checkpoints_of(topic_partition)
                future = target.open_future(topic_partition, name, log.topic_id, config)
                _begin_like(log, future)
        begun = self.under_way[topic_partition] = FutureLog(manager, log, source, target, future)
        return begun

    def _resume(
        self, log: PartitionLog, found: tuple[LogDirectory, str], target: LogDirectory, config: TopicConfig
    ) -> PartitionLog | None:
        directory, name = found
        # Compaction may have gone on meanwhile, and taken what says that a key is deleted.
        if directory is target and not config.is_compacted and log.cleaned_offset < 0:
            try:
                future = directory.open_future(log.topic_partition, name, log.topic_id, config)
                has_begun = future.log_end_offset > future.segments[0].base_offset
                # A deletion that was not durable may have come back in the one, and not in the other.
                has_all = future.log_start_offset <= log.log_start_offset and (
                    future.segments[0].base_offset <= log.segments[0].base_offset <= future.log_end_offset
                )
                if has_begun and has_all:
                    return future
                directory.futures.pop(log.topic_partition, None)
                future.close(clean=False)
            except CorruptCheckpoint as error:
                logger.warning("%s is begun anew: %s", name, error)
        directory.put_away(name)
        return None

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is the log now, or nothing any more."""
        moved = self.under_way.pop(topic_partition, None)
        if moved is not None:
            moved.target.futures.pop(topic_partition, None)

    def cancel(self, topic_partition: TopicPartition) -> None:
        """The log stays where it is, or goes as a whole: what was copied is nobody's. While a helper is at work on it,
        nothing happens: whoever waits for that comes again.

        Raises OSError.
        """
        moved = self.under_way.get(topic_partition)
        if moved is not None and moved.is_busy:
            return
        self.forget(topic_partition)
        if moved is not None:
            moved.future.close(clean=False)
            if moved.target.is_usable:
                moved.target.put_away(moved.future.directory.name)
                moved.target.forget_checkpoints_of(topic_partition)
            if moved.source.is_usable:
                forget_move(moved.source, topic_partition)
        found = self.found.pop(topic_partition, None)
        if found is not None and found[0].is_usable:
            found[0].put_away(found[1])

    def close(self) -> None:
        """The next start goes on with them."""
        for moved in self.under_way.values():
            moved.future.close(clean=False)
