"""The backup of one partition of `__consumer_offsets` in the object store: what compaction would leave of it. Pure.

That of a partition of `__share_group_state` has the same form (`appliance.share_groups.backup`).

    one line of JSON   format ("appliance groups"), format_version, topic, topic_id, partition, partitions,
                       leader_epoch, version, end_offset, records, length, crc32c
    batches            `length` bytes, whose CRC-32C the line has

One object per partition, replaced as a whole by the partition's leader.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from crc32c import crc32c

from appliance.base.ids import uuid_from_text, uuid_to_text
from appliance.coordinator.loader import load
from appliance.records.batch import split_batches
from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch

FORMAT = "appliance groups"
FORMAT_VERSION = 1
BATCH_BYTES = 256 << 10
"""A batch of the backup is closed when it has become so large."""


class CorruptBackup(ValueError):
    """A backup that cannot be believed."""


@dataclass(frozen=True, slots=True)
class BackupHead:
    """What a backup says of itself."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    partitions: int
    """How many the topic has: they decide which group is where."""
    leader_epoch: int
    """Of the leader that wrote it; one of an earlier epoch leaves it alone."""
    version: int
    end_offset: int
    """The records below this offset are in it."""
    records: int = 0


@dataclass(slots=True)
class LastRecords:
    """The last record of each key, of a log that is read piece by piece."""

    records: dict[bytes, bytes] = field(default_factory=dict)
    _open: dict[int, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    """By producer id, what its transaction has written."""

    def read(self, batches: Iterable[memoryview | bytes]) -> None:
        """Go on with committed batches, in order. Raises: CorruptBatch."""
        load(batches, self._take, self)

    def _take(self, key: bytes, value: bytes | None) -> bool:
        if value is None:
            self.records.pop(key, None)
        else:
            self.records[key] = value
        return True

    def replay(self, producer_id: int, key: bytes, value: bytes | None) -> bool:
        """A record in a transaction counts when that is committed."""
        self._open.setdefault(producer_id, []).append((key, value))
        return True

    def ended(self, producer_id: int, is_commit: bool) -> None:
        """The transaction has ended."""
        for key, value in self._open.pop(producer_id, []):
            if is_commit:
                self._take(key, value)


def encode_backup(head: BackupHead, records: dict[bytes, bytes], now_ms: int) -> bytes:
    """The bytes of the object."""
    body = b"".join(_batches(records, now_ms))
    values = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "topic": head.topic,
        "topic_id": uuid_to_text(head.topic_id),
        "partition": head.partition,
        "partitions": head.partitions,
        "leader_epoch": head.leader_epoch,
        "version": head.version,
        "end_offset": head.end_offset,
        "records": len(records),
        "length": len(body),
        "crc32c": crc32c(body),
    }
    return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n" + body


def parse_backup(data: bytes) -> tuple[BackupHead, list[memoryview]]:
    """The head and the batches. Raises: CorruptBackup."""
    line, _, body = data.partition(b"\n")
    try:
        values: dict[str, Any] = json.loads(line)
        if values["format"] != FORMAT or values["format_version"] != FORMAT_VERSION:
            raise CorruptBackup(f"not an {FORMAT} of version {FORMAT_VERSION}")
        if (values["length"], values["crc32c"]) != (len(body), crc32c(body)):
            raise CorruptBackup("length or crc differs")
        head = BackupHead(
            str(values["topic"]),
            uuid_from_text(values["topic_id"]),
            int(values["partition"]),
            int(values["partitions"]),
            int(values["leader_epoch"]),
            int(values["version"]),
            int(values["end_offset"]),
            int(values["records"]),
        )
        return head, list(split_batches(body))
    except CorruptBackup:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, CorruptBatch) as error:
        raise CorruptBackup(f"not a backup of groups: {error!r}") from error


def next_backup(earlier: BackupHead | None, head: BackupHead) -> BackupHead | None:
    """What takes the place of an earlier backup; None when a later leader has written that, or it is as new."""
    if earlier is None:
        return head
    if earlier.leader_epoch > head.leader_epoch:
        return None
    if earlier.leader_epoch == head.leader_epoch and earlier.end_offset >= head.end_offset:
        return None
    return replace(head, version=earlier.version + 1)


def _batches(records: dict[bytes, bytes], now_ms: int) -> Iterator[bytes]:
    rows: list[tuple[int, bytes | None, bytes | None, tuple[()]]] = []
    size = 0
    for key, value in records.items():
        rows.append((now_ms, key, value, ()))
        size += len(key) + len(value)
        if size >= BATCH_BYTES:
            yield build_batch(rows)
            rows, size = [], 0
    if rows:
        yield build_batch(rows)
