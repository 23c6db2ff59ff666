"""Batches made from records: for our own producers (coordinators, HTTP, connectors) and for tests."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC
from appliance.records.compression import compress

NewRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
"""Timestamp in milliseconds, key, value, headers."""

_pack_header = struct.Struct(">qiibI").pack_into
_pack_covered = struct.Struct(">hiqqqhii").pack


def build_batch(
    records: Iterable[NewRecord],
    *,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """One batch with dense offsets from `base_offset`, with CreateTime timestamps.

    Raises:
        ValueError: there are no records.
        CorruptBatch: there is no such codec.
    """
    body = bytearray()
    base_timestamp = max_timestamp = -1
    count = 0
    for timestamp, key, value, headers in records:
        if count == 0:
            base_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        record = encode_record(timestamp - base_timestamp, count, key, value, headers)
        body += encode_varint(len(record))
        body += record
        count += 1
    if count == 0:
        raise ValueError("a batch needs a record")
    packed = compress(codec, body) if codec else body
    attributes = codec | (0x10 if transactional else 0) | (0x20 if control else 0)
    covered = _pack_covered(
        attributes, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )
    batch = bytearray(HEADER_BYTES + len(packed))
    batch[CRC_START:HEADER_BYTES] = covered
    batch[HEADER_BYTES:] = packed
    crc = crc32c(memoryview(batch)[CRC_START:])
    _pack_header(batch, 0, base_offset, len(batch) - LENGTH_END, leader_epoch, MAGIC, crc)
    return bytes(batch)


def build_gap(offsets: int, now_ms: int) -> bytes:
    """One batch without records that takes up `offsets` offsets, as compaction leaves them behind."""
    batch = bytearray(HEADER_BYTES)
    batch[CRC_START:] = _pack_covered(0, offsets - 1, now_ms, now_ms, -1, -1, -1, 0)
    _pack_header(batch, 0, 0, HEADER_BYTES - LENGTH_END, -1, MAGIC, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytearray:
    """One record without its length in front."""
    record = bytearray(1)
    record += encode_varint(timestamp_delta)
    record += encode_varint(offset_delta)
    for field in (key, value):
        if field is None:
            record.append(1)
        else:
            record += encode_varint(len(field))
            record += field
    record += encode_varint(len(headers))
    for name, content in headers:
        encoded = name.encode()
        record += encode_varint(len(encoded))
        record += encoded
        if content is None:
            record.append(1)
        else:
            record += encode_varint(len(content))
            record += content
    return record


_SHORT_VARINTS = [bytes(((value << 1) ^ (value >> 31),)) for value in range(64)]


def encode_varint(value: int) -> bytes:
    """A zigzag varint, of up to 64 bits."""
    if 0 <= value < 64:
        return _SHORT_VARINTS[value]
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
