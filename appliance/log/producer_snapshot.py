"""Kafka's `.snapshot` files: what is known of the producers at an offset of the log.

```
i16 version 1 | u32 crc-32c of the rest | i32 count, then for each producer:
i64 producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp, i32 coordinator epoch,
i64 first offset of the open transaction (-1: none)
```
Only the last batch of each producer is in it; the four before it are forgotten at a restart, as in Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_COVERS_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """The file is not a whole producer snapshot. An older one, or the log itself, takes its place."""


class SnapshotEntry(NamedTuple):
    """One producer as a snapshot knows it. `last_offset` is -1 if its last batch is not known."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


def snapshot_to_bytes(entries: Iterable[SnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def snapshot_from_bytes(content: bytes) -> list[SnapshotEntry]:
    """Read a snapshot.

    Raises:
        CorruptSnapshot: the version is not known, the crc differs or the length does not fit.
    """
    if len(content) < _HEAD.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(content)} bytes")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _VERSION:
        raise CorruptSnapshot(f"a producer snapshot of version {version}")
    if crc32c(content[_CRC_COVERS_FROM:]) != crc:
        raise CorruptSnapshot("the crc of a producer snapshot differs")
    if count * _ENTRY.size != len(content) - _HEAD.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(content)} bytes says it holds {count} producers")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(content[_HEAD.size :])]
