"""Committed records of a range of the tier, in pieces of a size that depends on nothing but the records."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from appliance.records.batch import BatchHeader, parse_header, split_batches
from appliance.records.reader import read_records
from appliance.tiering.layout import AbortedTransaction
from appliance.tiering.reader import TierReader

PIECE_ROWS = 32_768
PIECE_BYTES = 8 << 20


class Interrupted(Exception):
    """The worker was told to stop."""


@dataclass(slots=True)
class Records:
    """Some records, column by column."""

    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    bytes: int = 0


def committed_records(
    reader: TierReader,
    topic_id: uuid.UUID,
    partition: int,
    start: int,
    end: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Records]:
    """Records with offsets in [start, end), without markers and without those of aborted transactions.

    Raises: Interrupted, and what `TierReader.read_range` raises.
    """
    piece = Records()
    for batches in reader.read_range(topic_id, partition, start, end):
        for batch in split_batches(batches.records):
            header = parse_header(batch)
            if header.is_control or not header.record_count or _is_aborted(header, batches.aborted):
                continue
            _add(piece, batch, start, end)
            if len(piece.offsets) >= PIECE_ROWS or piece.bytes >= PIECE_BYTES:
                if stopping():
                    raise Interrupted
                yield piece
                piece = Records()
    if stopping():
        raise Interrupted
    if piece.offsets:
        yield piece


def _add(piece: Records, batch: memoryview, start: int, end: int) -> None:
    offsets, timestamps, keys, values = piece.offsets, piece.timestamps_ms, piece.keys, piece.values
    size = 0
    for offset, timestamp, key, value, _ in read_records(batch):
        if start <= offset < end:
            offsets.append(offset)
            timestamps.append(timestamp)
            keys.append(key)
            values.append(value)
            size += len(value or b"") + len(key or b"")
    piece.bytes += size


def _is_aborted(header: BatchHeader, aborted: tuple[AbortedTransaction, ...]) -> bool:
    return header.is_transactional and any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )
