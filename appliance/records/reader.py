"""The records inside a batch.

```
varint  length of what follows
i8      attributes (none defined)
varlong timestamp delta from base_timestamp
varint  offset delta from base_offset
varint  key length, -1 for null; key
varint  value length, -1 for null; value
varint  number of headers; each: varint length, UTF-8 key, varint length or -1, value
```
Varints are zigzag: the sign is in the lowest bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from appliance.records.batch import HEADER_BYTES, LENGTH_END, BatchHeader, parse_header
from appliance.records.compression import DECOMPRESSED_MAX_BYTES, decompress
from appliance.records.errors import CorruptBatch

Headers = tuple[tuple[str, bytes | None], ...]

_new_tuple = tuple.__new__
_RECORD_MIN_BYTES = 7


class Record(NamedTuple):
    """One record with its absolute offset. `timestamp` is the batch's append time under LogAppendTime."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(batch: bytes | bytearray | memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> Iterator[Record]:
    """The records of one batch, in offset order. Checks no crc; control batches are read like any other.

    Raises:
        CorruptBatch: at once or while iterating, when the bytes do not hold the records that the header promises, or
            unpack to more than `max_bytes`.
    """
    header = parse_header(batch)
    if header.length + LENGTH_END > len(batch):
        raise CorruptBatch(f"batch at offset {header.base_offset} is cut off")
    if header.record_count == 0:
        return iter(())
    packed = memoryview(batch)[HEADER_BYTES : header.length + LENGTH_END]
    # Indexing bytes is faster than indexing a view, and keys and values must be copied out anyway.
    data = bytes(decompress(header.codec, packed, max_bytes))
    return _parse_records(header, data)


def _parse_records(header: BatchHeader, data: bytes) -> Iterator[Record]:
    base_offset, base_timestamp, count = header.base_offset, header.base_timestamp, header.record_count
    append_time = header.max_timestamp if header.timestamp_type else None
    if count < 0 or count * _RECORD_MIN_BYTES > len(data):
        raise CorruptBatch(f"batch at offset {base_offset}: {count} records cannot be in {len(data)} bytes")
    position, size = 0, len(data)
    try:
        for _ in range(count):
            # Varints of one byte are read in place: calls would take half of the time.
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise CorruptBatch(f"batch at offset {base_offset}: a record of {length} bytes at {position}")
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
            if length < 0:
                key = None
            else:
                key = data[position : position + length]
                position += length
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            if length < 0:
                value = None
            else:
                value = data[position : position + length]
                position += length
            if data[position] == 0:
                headers: Headers = ()
                position += 1
            else:
                headers, position = _parse_headers(data, position, end)
            if position != end:
                raise CorruptBatch(f"batch at offset {base_offset}: a record ends at {position}, its length says {end}")
            timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
            yield _new_tuple(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatch(f"batch at offset {base_offset}: records are cut off") from None
    if position != len(data):
        raise CorruptBatch(f"batch at offset {base_offset}: {len(data) - position} bytes behind the last record")


def _parse_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _varint(data, position)
    if count < 0 or count * 2 > end - position:
        raise CorruptBatch(f"{count} record headers in {end - position} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = _varint(data, position)
        if length < 0 or length > end - position:
            raise CorruptBatch(f"a header key of {length} bytes where {end - position} are left")
        try:
            key = data[position : position + length].decode()
        except UnicodeDecodeError as error:
            raise CorruptBatch(f"a header key is not UTF-8: {error}") from None
        position += length
        length, position = _varint(data, position)
        if length < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[position : position + length]))
            position += length
    return tuple(headers), position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at `position` and where it ends. Raises IndexError when the bytes end first."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise CorruptBatch(f"a varint at {position} has more than ten bytes")
