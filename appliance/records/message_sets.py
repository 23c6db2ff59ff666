"""Records as they were before batches of version 2: message sets of magic 0 and 1, made into batches and out of them.

```
 0  i64 offset          in a wrapper of magic 1: from the wrapper's first record on
 8  i32 size            of what follows
12  u32 crc             CRC-32 of everything behind it
16  i8  magic           0 or 1
17  i8  attributes      bits 0-2 codec, bit 3 timestamp type (magic 1)
18  i64 timestamp       magic 1 only
    i32 length of the key, -1 for null; key
    i32 length of the value, -1 for null; value
```
A message with a codec is a wrapper: its value is a packed message set. Its offset is that of its last record; offsets
within it are absolute in magic 0, and relative to the first in magic 1 (KIP-31). Headers did not exist, and control
records are nothing for those who do not know them. An lz4 frame of magic 0 has a checksum of its header that also
covers the frame's magic number (KAFKA-3160): such clients know no other.

Pure, but not quick: helper threads only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.records.batch import parse_header, split_batches
from appliance.records.builder import build_batch
from appliance.records.compression import DECOMPRESSED_MAX_BYTES, Codec, compress, decompress
from appliance.records.errors import CorruptBatch
from appliance.records.reader import Record, read_records

LOG_OVERHEAD = 12
"""Offset and size."""
MAGIC_AT = 16
_MIN_BYTES = (14, 22)
"""Of a message's size field, by magic: with null key and null value."""
_CODEC_MASK, _TIMESTAMP_TYPE_MASK = 0x07, 0x08
_KEY_AT = (18, 26)
NO_TIMESTAMP = -1

_unpack_start = struct.Struct(">qiIbb").unpack_from
_pack_log = struct.Struct(">qi").pack
_unpack_int = struct.Struct(">i").unpack_from
_unpack_long = struct.Struct(">q").unpack_from
_pack_int = struct.Struct(">i").pack
_pack_crc = struct.Struct(">I").pack


class Message(NamedTuple):
    """One message of a set, or a wrapper."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK


class Converted(NamedTuple):
    """A message set made of batches."""

    records: bytes
    record_count: int
    """Records that had to be made anew."""
    next_offset: int
    """Behind the last batch that was looked at, also where nothing of it was left; -1 where there was none."""


def batch_of(message_set: bytes | memoryview, max_bytes: int = DECOMPRESSED_MAX_BYTES) -> tuple[bytes, int] | None:
    """The one batch of version 2 that holds all records of what a producer sent, and how many these are.

    A message that is cut off at the end is passed over, as Kafka does it. None: there is nothing.

    Raises:
        CorruptBatch: with the code for the producer.
    """
    messages = read_set(bytes(message_set))
    if not messages:
        return None
    codec = 0
    if any(message.codec for message in messages):
        if len(messages) > 1:
            raise _invalid("beside a packed message there are others")
        codec = messages[0].codec
        messages = _unwrapped(messages[0], max_bytes)
    for message in messages:
        if message.attributes & _TIMESTAMP_TYPE_MASK and message.magic:
            raise CorruptBatch("producers do not set LogAppendTime", ErrorCode.INVALID_TIMESTAMP)
    rows = ((message.timestamp, message.key, message.value, ()) for message in messages)
    return build_batch(rows, codec=codec), len(messages)


def read_set(data: bytes) -> list[Message]:
    """The whole messages of a set, their crcs checked; wrappers stay closed.

    Raises:
        CorruptBatch: a crc differs, or lengths do not fit.
    """
    messages: list[Message] = []
    position, end = 0, len(data)
    while end - position >= LOG_OVERHEAD:
        (size,) = _unpack_int(data, position + 8)
        if size < _MIN_BYTES[0]:
            raise CorruptBatch(f"a message of {size} bytes at {position}")
        stop = position + LOG_OVERHEAD + size
        if stop > end:
            break
        messages.append(_message(data, position, stop))
        position = stop
    return messages


def _message(data: bytes, start: int, end: int) -> Message:
    offset, size, crc, magic, attributes = _unpack_start(data, start)
    if magic not in (0, 1):
        raise CorruptBatch(f"no message set has magic {magic}", ErrorCode.INVALID_RECORD)
    if size < _MIN_BYTES[magic]:
        raise CorruptBatch(f"a message of {size} bytes at {start}")
    if zlib.crc32(data[start + MAGIC_AT : end]) != crc:
        raise CorruptBatch(f"crc of the message at {start} differs")
    timestamp = _unpack_long(data, start + 18)[0] if magic else NO_TIMESTAMP
    key, position = _bytes(data, start + _KEY_AT[magic], end)
    value, position = _bytes(data, position, end)
    if position != end:
        raise CorruptBatch(f"{end - position} bytes behind the message at {start}")
    return Message(offset, magic, attributes, timestamp, key, value)


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise CorruptBatch("a message is cut off")
    (length,) = _unpack_int(data, position)
    position += 4
    if length < 0:
        return None, position
    if length > end - position:
        raise CorruptBatch(f"{length} bytes of a message where {end - position} are left")
    return data[position : position + length], position + length


def _unwrapped(wrapper: Message, max_bytes: int) -> list[Message]:
    """The records of a wrapper, in their order."""
    codec, packed = wrapper.codec, wrapper.value
    if packed is None:
        raise _invalid("a packed message without a value")
    if codec not in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        raise _invalid(f"messages of magic {wrapper.magic} are not packed by codec {codec}")
    if codec == Codec.LZ4 and wrapper.magic == 0:
        packed = with_lz4_checksum(packed, broken=False)
    data = bytes(decompress(codec, packed, max_bytes))
    messages = read_set(data)
    if not messages or sum(map(_size_of, messages)) != len(data):
        raise _invalid("what a packed message holds is cut off, or nothing")
    for message in messages:
        if message.magic != wrapper.magic or message.codec:
            raise _invalid("a packed message holds messages of another magic, or packed ones")
    return messages


def _size_of(message: Message) -> int:
    return LOG_OVERHEAD + _MIN_BYTES[message.magic] + len(message.key or b"") + len(message.value or b"")


def sets_of(batches: bytes | memoryview, magic: int, first_offset: int) -> Converted:
    """The message set of magic 0 or 1 for a reader that begins at `first_offset`: all whole batches, but for control
    batches and headers, in the codecs that they have.

    Raises:
        CorruptBatch: a batch cannot be read, or is packed by zstd, which readers of message sets do not know.
    """
    parts: list[bytes] = []
    count, next_offset = 0, -1
    for batch in split_batches(batches):
        header = parse_header(batch)
        next_offset = header.next_offset
        if header.is_control:
            continue
        if header.codec == Codec.ZSTD:
            if parts:
                # What comes before it can be read.
                next_offset = header.base_offset
                break
            raise CorruptBatch("zstd needs Fetch version 10 or above", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        records: Iterable[Record] = read_records(batch)
        if not header.codec:
            records = (record for record in records if record.offset >= first_offset)
        attributes = _TIMESTAMP_TYPE_MASK if magic and header.timestamp_type else 0
        found = list(records)
        if found:
            parts.append(_packed(found, magic, header.codec, attributes))
            count += len(found)
    return Converted(b"".join(parts), count, next_offset)


def _packed(records: list[Record], magic: int, codec: int, attributes: int) -> bytes:
    first = records[0].offset if codec and magic else 0
    inner = b"".join(
        encode_message(record.offset - first, magic, attributes, record.timestamp, record.key, record.value)
        for record in records
    )
    if not codec:
        return inner
    packed = compress(codec, inner)
    if codec == Codec.LZ4 and magic == 0:
        packed = with_lz4_checksum(packed, broken=True)
    timestamp = max(record.timestamp for record in records)
    return encode_message(records[-1].offset, magic, attributes | codec, timestamp, None, packed)


def encode_message(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    """One message with its offset and size."""
    covered = bytearray((magic, attributes))
    if magic:
        covered += timestamp.to_bytes(8, "big", signed=True)
    for field in (key, value):
        if field is None:
            covered += b"\xff\xff\xff\xff"
        else:
            covered += _pack_int(len(field))
            covered += field
    return _pack_log(offset, 4 + len(covered)) + _pack_crc(zlib.crc32(covered)) + covered


def with_lz4_checksum(frame: bytes, *, broken: bool) -> bytes:
    """The frame with the checksum of its header that all the world has, or with that of messages of magic 0."""
    if len(frame) < 7:
        raise CorruptBatch("an lz4 block is cut off")
    at = 14 if frame[4] & 0x08 else 6
    if len(frame) <= at:
        raise CorruptBatch("an lz4 block is cut off")
    checksum = xxh32(frame[0 if broken else 4 : at]) >> 8 & 0xFF
    return frame[:at] + bytes((checksum,)) + frame[at + 1 :]


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_M = 0xFFFF_FFFF


def xxh32(data: bytes) -> int:
    """The hash of a few bytes, fewer than sixteen, with seed 0."""
    value = _P5 + len(data)
    position = 0
    while position + 4 <= len(data):
        value = value + int.from_bytes(data[position : position + 4], "little") * _P3 & _M
        value = (value << 17 | value >> 15) * _P4 & _M
        position += 4
    for byte in data[position:]:
        value = value + byte * _P5 & _M
        value = (value << 11 | value >> 21) * _P1 & _M
    value = (value ^ value >> 15) * _P2 & _M
    value = (value ^ value >> 13) * _P3 & _M
    return value ^ value >> 16


def _invalid(message: str) -> CorruptBatch:
    return CorruptBatch(message, ErrorCode.INVALID_RECORD)
