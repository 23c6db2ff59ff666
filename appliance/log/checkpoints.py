"""Kafka's small text files beside the segments. All are replaced whole, never changed in place.

```
*-offset-checkpoint       0 (version) / number of lines / "<topic> <partition> <offset>" ...
leader-epoch-checkpoint   0 / number of lines / "<epoch> <start offset>" ...
partition.metadata        version: 0 / topic_id: <22 characters>
meta.properties           version=1, cluster.id, node.id, directory.id
```
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from appliance.base.disk import Disk
from appliance.base.ids import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"

CHECKPOINT_MAX_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_SMALL_FILE_BYTES = 4096
"""What is tried first: most files are smaller, and there are thousands of them."""
_VERSION = "0"
_TOPICS_REMEMBERED = 1_024


class CorruptCheckpoint(ValueError):
    """A checkpoint file is not in its format."""


def read_file(disk: Disk, path: Path | str, max_bytes: int = CHECKPOINT_MAX_BYTES) -> bytes | None:
    """The whole of a small file; None when there is none."""
    try:
        descriptor = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        piece = disk.pread(descriptor, _SMALL_FILE_BYTES, 0)
        if len(piece) < _SMALL_FILE_BYTES:
            return piece
        pieces = [piece]
        position = len(piece)
        while piece := disk.pread(descriptor, _READ_BYTES, position):
            pieces.append(piece)
            position += len(piece)
            if position > max_bytes:
                raise CorruptCheckpoint(f"{path} is larger than {max_bytes} bytes")
            if len(piece) < _READ_BYTES:
                break
        return b"".join(pieces)
    finally:
        disk.close(descriptor)


def replace_file(
    disk: Disk, path: Path, content: bytes, *, durable: bool = True, temporary_suffix: str = ".tmp"
) -> None:
    """Write a file whole or not at all: a temporary one, flushed, then renamed over it.

    Two threads that may write the same file at the same time need suffixes of their own.
    """
    temporary = path.with_name(path.name + temporary_suffix)
    descriptor = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_fully(disk, descriptor, content, 0)
        if durable:
            disk.fsync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    if durable:
        disk.fsync_directory(path.parent)


def write_fully(disk: Disk, descriptor: int, content: bytes, position: int) -> None:
    """`pwrite` until everything is written."""
    view = memoryview(content)
    while view:
        written = disk.pwrite(descriptor, view, position)
        view = view[written:]
        position += written


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty when there is none.

    Raises:
        CorruptCheckpoint: the file is not in its format.
    """
    offsets: dict[TopicPartition, int] = {}
    for line in _checkpoint_lines(path, read_file(disk, path)):
        try:
            # From the right: an old topic name may hold anything but a slash.
            topic, partition, offset = line.rsplit(" ", 2)
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(f"{path}: not a partition and its offset: {line!r}") from None
    return offsets


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_file(disk, path, _checkpoint_bytes(lines))


def read_epochs(disk: Disk, path: Path | str) -> list[tuple[int, int]] | None:
    """(leader epoch, its start offset) in rising order; None when there is no file.

    Raises:
        CorruptCheckpoint: the file is not in its format, or the epochs do not rise.
    """
    content = read_file(disk, path)
    if content is None:
        return None
    epochs: list[tuple[int, int]] = []
    for line in _checkpoint_lines(path, content):
        try:
            epoch, start = line.split(" ")
            entry = (int(epoch), int(start))
        except ValueError:
            raise CorruptCheckpoint(f"{path}: not an epoch and its start: {line!r}") from None
        if epochs and (entry[0] <= epochs[-1][0] or entry[1] < epochs[-1][1]):
            raise CorruptCheckpoint(f"{path}: epoch {entry[0]} from {entry[1]} follows {epochs[-1]}")
        epochs.append(entry)
    return epochs


def epochs_to_bytes(epochs: Iterable[tuple[int, int]]) -> bytes:
    """The content of a leader-epoch-checkpoint."""
    return _checkpoint_bytes([f"{epoch} {start}" for epoch, start in epochs])


def read_partition_metadata(disk: Disk, path: Path | str) -> uuid.UUID | None:
    """The topic id in a partition.metadata file; None when there is no file.

    Raises:
        CorruptCheckpoint: the file is not in its format.
    """
    content = read_file(disk, path)
    if content is None:
        return None
    try:
        return _topic_id_in(content)
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path}: no topic id: {error}") from None


@lru_cache(_TOPICS_REMEMBERED)
def _topic_id_in(content: bytes) -> uuid.UUID:
    """The partitions of a topic all have the same file."""
    fields = _fields(content, ":")
    if fields["version"] != "0":
        raise ValueError(f"version {fields['version']} is not known")
    return uuid_from_text(fields["topic_id"])


def write_partition_metadata(disk: Disk, path: Path, topic_id: uuid.UUID, *, durable: bool = True) -> None:
    replace_file(disk, path, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode(), durable=durable)


def read_properties(disk: Disk, path: Path) -> dict[str, str] | None:
    """A properties file of plain `key=value` lines; None when there is no file."""
    content = read_file(disk, path)
    return None if content is None else _fields(content, "=")


def write_properties(disk: Disk, path: Path, properties: Mapping[str, str]) -> None:
    replace_file(disk, path, "".join(f"{key}={value}\n" for key, value in sorted(properties.items())).encode())


def _fields(content: bytes, separator: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        key, found, value = line.partition(separator)
        if found and not line.startswith("#"):
            fields[key.strip()] = value.strip()
    return fields


def _checkpoint_lines(path: Path | str, content: bytes | None) -> list[str]:
    if content is None:
        return []
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from None
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(f"{path}: not version {_VERSION}, a number of lines, and that many lines")
    return lines[2:]


def _checkpoint_bytes(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
