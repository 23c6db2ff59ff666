"""Partition folders that another Kafka has written, read without changing a byte of them.

Indexes are not believed and not needed: every batch is read, its crc checked, and its offsets must rise. What Kafka
keeps beside the segments is taken into account: the log start and the recovery point from the checkpoints of the data
folder, the producers from the newest snapshot. The part of a tiered log that is only in that cluster's remote storage
is not here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from appliance.base.disk import Disk
from appliance.base.ids import TopicPartition
from appliance.log.checkpoints import LOG_START_FILE, META_PROPERTIES_FILE, RECOVERY_POINT_FILE, read_file, read_offsets
from appliance.log.directory_identity import CLEAN_SHUTDOWN_FILE
from appliance.log.log_manager import parse_folder_name
from appliance.log.producer_recovery import SNAPSHOT_SUFFIX
from appliance.log.producer_snapshot import CorruptSnapshot, SnapshotEntry, snapshot_from_bytes
from appliance.log.producer_state import ProducerState, snapshot_of
from appliance.log.recovery import offset_in_name
from appliance.log.scan import walk_batches
from appliance.log.segment import file_stem
from appliance.records.batch import MAGIC, BatchHeader
from appliance.records.control import read_marker
from appliance.records.errors import CorruptBatch

LOG_SUFFIX = ".log"
INTERRUPTED_SUFFIX = ".swap"
_MAGIC_AT = 16


class UnusableFolder(ValueError):
    """The folder holds no log that could be taken over, and why."""


@dataclass(frozen=True, slots=True)
class ForeignLog:
    """One partition's folder: which segments it has, oldest first, and what its data folder says of it."""

    directory: Path
    topic_partition: TopicPartition
    bases: tuple[int, ...]
    log_start_offset: int
    recovery_point: int
    """What lies above may be half written, unless the broker was stopped cleanly."""
    is_clean: bool

    @property
    def size_bytes(self) -> int:
        return sum(self.path_of(base).stat().st_size for base in self.bases)

    def path_of(self, base: int) -> Path:
        return self.directory / f"{file_stem(base)}{LOG_SUFFIX}"


@dataclass(slots=True)
class Content:
    """What a check has found in a log."""

    start_offset: int
    """Of the first batch to be taken over, or the log start, whichever comes first."""
    log_start_offset: int
    end_offset: int
    records: int = 0
    batches: int = 0
    bytes: int = 0
    min_segment_timestamp: int = -1
    """The smallest of the segments' largest timestamps: the first that retention would look at."""
    codecs: set[int] = field(default_factory=set)
    is_dense: bool = True
    """Whether no offset is missing; compaction leaves holes."""
    producers: list[SnapshotEntry] = field(default_factory=list)
    open_transactions: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer id, producer epoch, first offset) of those that have no marker yet."""
    torn: str = ""
    """What a crash left behind the last whole batch, above the recovery point: it is not taken over."""


def find_logs(disk: Disk, directory: Path) -> list[ForeignLog]:
    """The logs in a partition's folder, or in a data folder, by topic and partition.

    Raises:
        UnusableFolder: there is none, or one is in the middle of something. OSError: it cannot be read.
    """
    if not directory.is_dir():
        raise UnusableFolder(f"{directory} is no folder")
    directory = directory.resolve()
    names = disk.listdir(directory)
    if any(name.endswith(LOG_SUFFIX) and offset_in_name(name) is not None for name in names):
        folders = [directory]
    else:
        folders = [directory / name for name in names if parse_folder_name(name) and (directory / name).is_dir()]
        if not folders and META_PROPERTIES_FILE not in names:
            raise UnusableFolder(f"{directory} is neither the folder of a partition nor one with such folders")
    logs = [log for folder in folders if (log := _log_in(disk, folder)) is not None]
    return sorted(logs, key=lambda log: log.topic_partition)


def _log_in(disk: Disk, folder: Path) -> ForeignLog | None:
    topic_partition = parse_folder_name(folder.name)
    if topic_partition is None:
        raise UnusableFolder(f"{folder} is not named <topic>-<partition>")
    names = disk.listdir(folder)
    interrupted = [name for name in names if name.endswith(INTERRUPTED_SUFFIX)]
    if interrupted:
        raise UnusableFolder(
            f"{folder} holds {interrupted[0]}: a compaction was interrupted; start that broker once and stop it"
        )
    bases = sorted(base for name in names if name.endswith(LOG_SUFFIX) and (base := offset_in_name(name)) is not None)
    if not bases:
        return None
    data = folder.parent
    starts, points = _offsets_in(disk, data / LOG_START_FILE), _offsets_in(disk, data / RECOVERY_POINT_FILE)
    return ForeignLog(
        folder,
        topic_partition,
        tuple(bases),
        max(bases[0], starts.get(topic_partition, 0)),
        points.get(topic_partition, 0),
        disk.exists(data / CLEAN_SHUTDOWN_FILE),
    )


def _offsets_in(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """A checkpoint, which Kafka makes empty and fills later."""
    return read_offsets(disk, path) if read_file(disk, path) else {}


def batches_of(
    disk: Disk, log: ForeignLog, from_offset: int, end_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Whole batches from the one that holds `from_offset` on, up to `end_offset`, crc checked.

    Raises:
        CorruptBatch: while iterating, with the file and place of the damage. OSError.
    """
    for base, following in zip(log.bases, (*log.bases[1:], end_offset), strict=True):
        if following <= from_offset or base >= end_offset:
            continue
        for _, header, batch in _batches_in(disk, log.path_of(base), base):
            if header.next_offset > from_offset and header.base_offset < end_offset:
                yield header, batch


def _batches_in(disk: Disk, path: Path, base: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    descriptor = disk.open(path, os.O_RDONLY)
    try:
        yield from walk_batches(disk, descriptor, 0, disk.size(descriptor), base)
    except CorruptBatch as error:
        head = disk.pread(descriptor, _MAGIC_AT + 1, 0)
        if len(head) > _MAGIC_AT and head[_MAGIC_AT] < MAGIC:
            raise CorruptBatch(f"{path}: messages of magic {head[_MAGIC_AT]}, from before Kafka 0.11") from error
        raise CorruptBatch(f"{path}: {error.message or error}") from error
    finally:
        disk.close(descriptor)


def check(disk: Disk, log: ForeignLog, progress: Callable[[int], None] = lambda size: None) -> Content:
    """Read every batch; `progress` gets the bytes as they are done.

    Raises:
        CorruptBatch: damage, or offsets that do not rise. OSError.
    """
    content = Content(log.log_start_offset, log.log_start_offset, log.log_start_offset)
    state = ProducerState()
    expected = -1
    for number, base in enumerate(log.bases):
        newest = -1
        try:
            if base < expected:
                raise CorruptBatch(f"{log.path_of(base)}: begins below {expected}, where the segment before it ends")
            content.is_dense = content.is_dense and expected in (-1, base)
            expected = max(expected, base)
            for _, header, batch in _batches_in(disk, log.path_of(base), base):
                content.is_dense = content.is_dense and header.base_offset == expected
                content.is_dense = content.is_dense and header.last_offset_delta == header.record_count - 1
                expected = header.next_offset
                newest = max(newest, header.max_timestamp)
                _note(content, state, header, batch)
                progress(len(batch))
        except CorruptBatch as error:
            is_last = number == len(log.bases) - 1
            if log.is_clean or not is_last or expected < log.recovery_point:
                raise
            content.torn = error.message or str(error)
        if newest >= 0 and (content.min_segment_timestamp < 0 or newest < content.min_segment_timestamp):
            content.min_segment_timestamp = newest
    content.end_offset = max(expected, log.log_start_offset)
    state.adopt(_newest_snapshot(disk, log, content.end_offset))
    state.undo.clear()
    content.producers = snapshot_of(state.copy())
    epochs = {entry.producer_id: entry.epoch for entry in content.producers}
    content.open_transactions = [(each, epochs[each], first) for each, first in state.ongoing_transactions]
    return content


def _note(content: Content, state: ProducerState, header: BatchHeader, batch: memoryview) -> None:
    if header.producer_id >= 0:
        marker = read_marker(batch) if header.is_control else None
        if not header.is_control:
            state.update(header, header.base_offset, header.max_timestamp)
        elif marker is not None:
            state.end_transaction(header, marker, header.base_offset, header.max_timestamp)
        state.undo.clear()
    if header.next_offset <= content.log_start_offset:
        return
    content.start_offset = min(content.start_offset, header.base_offset)
    content.records += header.record_count
    content.batches += 1
    content.bytes += len(batch)
    content.codecs.add(header.codec)


def _newest_snapshot(disk: Disk, log: ForeignLog, end_offset: int) -> list[SnapshotEntry]:
    offsets = [offset_in_name(name) for name in disk.listdir(log.directory) if name.endswith(SNAPSHOT_SUFFIX)]
    for offset in sorted((each for each in offsets if each is not None and each <= end_offset), reverse=True):
        try:
            path = log.directory / f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
            return snapshot_from_bytes(read_file(disk, path) or b"")
        except CorruptSnapshot:
            continue
    return []
