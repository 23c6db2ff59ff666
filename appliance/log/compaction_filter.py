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
    keep_tombstones: bool = False
    """Whether tombstones and markers stay, and get no delete horizon: older records may lie outside of this log."""


def unpack(header: BatchHeader, batch: memoryview) -> bytes:
    """The records of a batch. Raises CorruptBatch."""
    return bytes(decompress(header.codec, batch[HEADER_BYTES:]))


def note_offsets(header: BatchHeader, data: bytes, start_offset: int, offsets: dict[bytes, int]) -> None:
    """Note the offset of each key in a batch from `start_offset` on; the last one of a key counts.

    Raises:
        CorruptBatch: the records are not what the header promises.
    """
    base_offset, count, size = header.base_offset, header.record_count, len(data)
    if count < 0 or count * _RECORD_MIN_BYTES > size:
        raise CorruptBatch(f"batch at offset {base_offset}: {count} records cannot be in {size} bytes")
    position = 0
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 1
                end = position + (byte >> 1)
            else:
                length, position = _varint(data, position)
                end = position + length
            position += 1
            while data[position] > 0x7F:
                # The timestamp is of no interest.
                position += 1
            byte = data[position + 1]
            if byte < 0x80:
                offset, position = base_offset + (byte >> 1), position + 2
            else:
                delta, position = _varint(data, position + 1)
                offset = base_offset + delta
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            if length >= 0 and offset >= start_offset:
                key = data[position : position + length]
                if length > WHOLE_KEY_MAX_BYTES:
                    key = b"#" + _sha256(key).digest()
                offsets[key] = offset
            if position + length >= end:
                raise CorruptBatch(f"batch at offset {base_offset}: a key of {length} bytes in a record until {end}")
            position = end
    except IndexError:
        raise CorruptBatch(f"batch at offset {base_offset}: records are cut off") from None
    if position != size:
        raise CorruptBatch(f"batch at offset {base_offset}: {size - position} bytes behind the last record")


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
    is_past = horizon_ms is not None and horizon_ms <= round_.now_ms and not round_.keep_tombstones
    records_go = is_discardable and (is_past or not header.is_control)
    stays_empty = keep_empty or _is_last_of_its_producer(header, round_.producers)
    if header.record_count == 0 or records_go:
        if not stays_empty:
            return None
        return batch if header.record_count == 0 else _emptied(header)
    data = unpack(header, batch)
    if header.is_control:
        left = Selection(data, header.record_count, header.max_timestamp - header.base_timestamp, is_discardable)
    else:
        left = select_newest(header, data, round_, tombstones_go=is_past)
    if not left.record_count:
        return _emptied(header) if stays_empty else None
    if horizon_ms is None and left.has_tombstone and not round_.keep_tombstones:
        return _with_horizon(header, left, round_.now_ms + round_.delete_retention_ms)
    if left.record_count == header.record_count:
        return batch
    return _built(header, left, left.body)


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


class Selection(NamedTuple):
    """The records of a batch that stay."""

    body: bytes
    record_count: int
    max_timestamp_delta: int
    has_tombstone: bool
    """Or it is a marker that shall go later."""


def select_newest(header: BatchHeader, data: bytes, round_: Round, *, tombstones_go: bool) -> Selection:
    """The records for which no newer one of the same key is known. Plain and long, because it runs for every record.

    Raises:
        CorruptBatch: they are not what the header promises.
    """
    base_offset, count, size = header.base_offset, header.record_count, len(data)
    latest_delta = round_.latest_offset - base_offset
    newest_of = round_.offsets.get
    if count < 0 or count * _RECORD_MIN_BYTES > size:
        raise CorruptBatch(f"batch at offset {base_offset}: {count} records cannot be in {size} bytes")
    pieces: list[bytes] = []
    kept, max_delta, has_tombstone = 0, -(1 << 63), False
    position = run_start = 0
    try:
        for _ in range(count):
            start = position
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            end = position + length
            byte = data[position + 1]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, position = _varint(data, position + 1)
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = _varint(data, position)
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            behind_key = position + length if length > 0 else position
            byte = data[behind_key]
            if end > size or behind_key >= end or not 0 <= offset_delta <= header.last_offset_delta:
                raise CorruptBatch(f"batch at offset {base_offset}: no record at {start}")
            is_tombstone = byte == 1 or (byte >= 0x80 and _varint(data, behind_key)[0] < 0)
            stays = True
            if offset_delta <= latest_delta:
                if length < 0 or (tombstones_go and is_tombstone):
                    stays = False
                else:
                    key = data[position:behind_key]
                    if length > WHOLE_KEY_MAX_BYTES:
                        key = b"#" + _sha256(key).digest()
                    stays = newest_of(key, -1) <= base_offset + offset_delta
            if stays:
                kept += 1
                if timestamp_delta > max_delta:
                    max_delta = timestamp_delta
                has_tombstone = has_tombstone or is_tombstone
            else:
                if run_start < start:
                    pieces.append(data[run_start:start])
                run_start = end
            position = end
    except IndexError:
        raise CorruptBatch(f"batch at offset {base_offset}: records are cut off") from None
    if position != size:
        raise CorruptBatch(f"batch at offset {base_offset}: {size - position} bytes behind the last record")
    if kept == count:
        return Selection(data, kept, max_delta, has_tombstone)
    pieces.append(data[run_start:])
    return Selection(b"".join(pieces), kept, max_delta, has_tombstone)


def _emptied(header: BatchHeader) -> bytes:
    """The batch without records; what is known of its producer and its offsets stays."""
    return _packed(header, header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK), NO_TIMESTAMP, header.max_timestamp)


def _with_horizon(header: BatchHeader, left: Selection, horizon_ms: int) -> bytes:
    """The batch with a delete horizon as its base timestamp; timestamp deltas change, times do not."""
    shift = header.base_timestamp - horizon_ms
    data, position = left.body, 0
    pieces: list[bytes] = []
    for _ in range(left.record_count):
        length, timestamp_at = _varint(data, position)
        end = timestamp_at + length
        timestamp_delta, offset_at = _varint(data, timestamp_at + 1)
        delta = encode_varint(timestamp_delta + shift)
        attributes = data[timestamp_at : timestamp_at + 1]
        pieces += (encode_varint(end - offset_at + 1 + len(delta)), attributes, delta, data[offset_at:end])
        position = end
    return _built(header, left, b"".join(pieces), horizon_ms)


def _built(header: BatchHeader, left: Selection, body: bytes, horizon_ms: int | None = None) -> bytes:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    max_timestamp = header.max_timestamp
    if not header.timestamp_type:
        max_timestamp = base_timestamp + left.max_timestamp_delta
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_MASK, horizon_ms
    packed = compress(header.codec, body) if header.codec else body
    return _packed(header, attributes, base_timestamp, max_timestamp, packed, left.record_count)


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
