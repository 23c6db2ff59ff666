"""What is left of one batch when a log is cleaned: the batch as it is, a smaller one, or nothing. Pure.

- Of the records of a key up to the end of the dirty part the newest stays; one without a key goes.
- A tombstone stays until the delete horizon of its batch has passed: the time of the first cleaning that saw it as the
  newest, plus delete.retention.ms. The horizon stands in the base timestamp of the batch, marked by attribute bit 6,
  and the timestamp deltas are relative to it (KIP-534).
- Offsets, base offset, last offset, producer id, epoch and base sequence never change. The last batch of a live
  producer stays even when it is empty, and so does the last one of what becomes a segment.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

from crc32c import crc32c

from appliance.records.batch import (
    CODEC_MASK,
    CONTROL_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from appliance.records.builder import encode_varint
from appliance.records.compression import compress, decompress
from appliance.records.errors import CorruptBatch

NO_TIMESTAMP = -1
WHOLE_KEY_MAX_BYTES = 32
"""Longer keys are compared by their SHA-256."""
_RECORD_MIN_BYTES = 7

_pack_start = struct.Struct(">qiibI").pack_into
_pack_covered = struct.Struct(">hiqqqhii").pack_into
_sha256 = hashlib.sha256


class PlacedRecord(NamedTuple):
    """A record and where it stands in the unpacked records of its batch."""

    start: int
    """Of its length."""
    timestamp_at: int
    """Where its timestamp delta begins."""
    offset_at: int
    """Where its offset delta begins, behind the timestamp delta."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    """As it stands in the map of offsets: longer keys are hashed."""
    is_tombstone: bool


class LastRecord(NamedTuple):
    """The last that a live producer has written."""

    data_offset: int
    """-1 when only a marker is left."""
    epoch: int


class Round(NamedTuple):
    """What the whole of a round knows."""

    offsets: Mapping[bytes, int]
    """The newest offset of each key of the dirty part."""
    latest_offset: int
    """Up to here the keys are known; records above stay."""
    producers: Mapping[int, LastRecord]
    now_ms: int
    delete_retention_ms: int


def unpack(header: BatchHeader, batch: memoryview) -> bytes:
    """The records of a batch. Raises CorruptBatch."""
    return bytes(decompress(header.codec, batch[HEADER_BYTES:]))


def place_records(header: BatchHeader, data: bytes) -> list[PlacedRecord]:
    """The records in `data`, in offset order.

    Raises:
        CorruptBatch: they are not what the header promises.
    """
    count, size = header.record_count, len(data)
    if count < 0 or count * _RECORD_MIN_BYTES > size:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {count} records cannot be in {size} bytes")
    placed: list[PlacedRecord] = []
    new = tuple.__new__
    position = 0
    try:
        for _ in range(count):
            start = position
            # Varints of one byte are read in place: calls would take half of the time.
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            end = position + length
            timestamp_at = position + 1
            byte = data[timestamp_at]
            if byte < 0x80:
                timestamp_delta, offset_at = (byte >> 1) ^ -(byte & 1), timestamp_at + 1
            else:
                timestamp_delta, offset_at = _varint(data, timestamp_at)
            byte = data[offset_at]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), offset_at + 1
            else:
                offset_delta, position = _varint(data, offset_at)
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            if length < 0:
                key = None
            else:
                key = data[position : position + length]
                position += length
                if length > WHOLE_KEY_MAX_BYTES:
                    # One byte longer than any key that stands for itself.
                    key = b"#" + _sha256(key).digest()
            byte = data[position]
            if end > size or position >= end or not 0 <= offset_delta <= header.last_offset_delta:
                raise CorruptBatch(f"batch at offset {header.base_offset}: no record at {start}")
            is_tombstone = byte == 1 or (byte >= 0x80 and _varint(data, position)[0] < 0)
            new_record = (start, timestamp_at, offset_at, end, timestamp_delta, offset_delta, key, is_tombstone)
            placed.append(new(PlacedRecord, new_record))
            position = end
    except IndexError:
        raise CorruptBatch(f"batch at offset {header.base_offset}: records are cut off") from None
    if position != size:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {size - position} bytes behind the last record")
    return placed


def clean_batch(
    header: BatchHeader,
    batch: memoryview,
    round_: Round,
    *,
    is_discardable: bool,
    keep_empty: bool,
) -> bytes | memoryview | None:
    """What stays of a batch.

    Args:
        is_discardable: its transaction was aborted, or it is a marker that is of no use any more.
        keep_empty: it marks an end that must not be forgotten.

    Raises:
        CorruptBatch: it cannot be unpacked.
    """
    horizon_ms = header.base_timestamp if header.has_delete_horizon else None
    is_past = horizon_ms is not None and horizon_ms <= round_.now_ms
    records_go = is_discardable and (is_past or not header.is_control)
    stays_empty = keep_empty or _is_last_of_its_producer(header, round_.producers)
    if header.record_count == 0 or records_go:
        if not stays_empty:
            return None
        return batch if header.record_count == 0 else _emptied(header)
    data = unpack(header, batch)
    placed = place_records(header, data)
    kept = placed if header.is_control else _newest(header, placed, round_, tombstones_go=is_past)
    if not kept:
        return _emptied(header) if stays_empty else None
    sets_horizon = horizon_ms is None and (
        is_discardable if header.is_control else any(record.is_tombstone for record in kept)
    )
    if sets_horizon:
        return _with_horizon(header, data, kept, round_.now_ms + round_.delete_retention_ms)
    if len(kept) == len(placed):
        return batch
    return _built(header, b"".join([data[record.start : record.end] for record in kept]), kept)


def _is_last_of_its_producer(header: BatchHeader, producers: Mapping[int, LastRecord]) -> bool:
    """Its last data batch has the sequence, or, if none is left, its marker has the epoch to go on from."""
    if header.producer_id < 0:
        return False
    last = producers.get(header.producer_id)
    if last is None:
        return False
    if last.data_offset >= 0:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.epoch


def _newest(
    header: BatchHeader, placed: list[PlacedRecord], round_: Round, *, tombstones_go: bool
) -> list[PlacedRecord]:
    """The records for which no newer one of the same key is known."""
    base_offset, latest_offset = header.base_offset, round_.latest_offset
    if base_offset > latest_offset:
        return placed
    newest_of = round_.offsets.get
    kept: list[PlacedRecord] = []
    for record in placed:
        offset = base_offset + record.offset_delta
        if offset <= latest_offset:
            key = record.key
            if key is None or newest_of(key, -1) > offset or (tombstones_go and record.is_tombstone):
                continue
        kept.append(record)
    return kept


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records; what is known of its producer and its offsets stays."""
    return _packed(header, header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK), NO_TIMESTAMP, header.max_timestamp)


def _with_horizon(header: BatchHeader, data: bytes, kept: list[PlacedRecord], horizon_ms: int) -> bytes:
    """The batch with a delete horizon as its base timestamp; timestamp deltas change, times do not."""
    shift = header.base_timestamp - horizon_ms
    pieces: list[bytes] = []
    for record in kept:
        delta = encode_varint(record.timestamp_delta + shift)
        length = record.end - record.offset_at + 1 + len(delta)
        pieces += (
            encode_varint(length),
            data[record.timestamp_at - 1 : record.timestamp_at],
            delta,
            data[record.offset_at : record.end],
        )
    return _built(header, b"".join(pieces), kept, horizon_ms)


def _built(header: BatchHeader, body: bytes, kept: list[PlacedRecord], horizon_ms: int | None = None) -> bytes:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    max_timestamp = header.max_timestamp
    if not header.timestamp_type:
        max_timestamp = base_timestamp + max(record.timestamp_delta for record in kept)
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_MASK, horizon_ms
    packed = compress(header.codec, body) if header.codec else body
    return _packed(header, attributes, base_timestamp, max_timestamp, packed, len(kept))


_KEPT_ATTRIBUTES = CODEC_MASK | TIMESTAMP_TYPE_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


def _packed(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, body: bytes = b"", count: int = 0
) -> bytes:
    """A batch at the place of `header`'s, with other records."""
    batch = bytearray(HEADER_BYTES + len(body))
    _pack_covered(
        batch,
        CRC_START,
        attributes & _KEPT_ATTRIBUTES,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    batch[HEADER_BYTES:] = body
    crc = crc32c(memoryview(batch)[CRC_START:])
    _pack_start(batch, 0, header.base_offset, len(batch) - LENGTH_END, header.partition_leader_epoch, MAGIC, crc)
    return bytes(batch)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at `position` and where it ends. Raises IndexError when the bytes end first."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch(f"a varint at {position} has more than ten bytes")
