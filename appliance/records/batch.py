"""A record batch of version 2, read and stamped in place.

```
 0  i64 base_offset              stamped by the leader, outside the crc
 8  i32 length                   bytes behind this field
12  i32 partition_leader_epoch   stamped by the leader, outside the crc
16  i8  magic                    2
17  u32 crc                      CRC-32C of everything from attributes to the end
21  i16 attributes               bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
23  i32 last_offset_delta
27  i64 base_timestamp           of the first record; the delete horizon when bit 6 is set
35  i64 max_timestamp
43  i64 producer_id              -1: none
51  i16 producer_epoch
53  i32 base_sequence
57  i32 record_count
61  records, compressed as one block if a codec is set
```
All integers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from appliance.base.errors import ErrorCode
from appliance.records.errors import CorruptBatch

__all__ = [
    "CRC_START",
    "HEADER_BYTES",
    "LENGTH_END",
    "MAGIC",
    "NO_PRODUCER_ID",
    "BatchHeader",
    "CorruptBatch",
    "check_batch",
    "parse_header",
    "set_log_append_time",
    "split_batches",
    "stamp",
]

HEADER_BYTES = 61
LENGTH_END = 12
"""Size of base offset and length: what a batch has above its `length` field."""
CRC_START = 21
"""Where the bytes begin that the crc covers."""
MAGIC = 2
NO_PRODUCER_ID = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_unpack_header = _HEADER.unpack_from
_unpack_length_and_magic = struct.Struct(">iib").unpack_from
_pack_offset = struct.Struct(">q").pack_into
_pack_epoch = struct.Struct(">i").pack_into
_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as they stand in the batch."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 CreateTime, 1 LogAppendTime."""
        return (self.attributes & TIMESTAMP_TYPE_MASK) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time at which tombstones and markers may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def size_in_bytes(self) -> int:
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences go from 2^31 - 1 on to 0. -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(view: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the header at `position`, believing nothing of it.

    Raises:
        CorruptBatch: fewer than 61 bytes are there.
    """
    try:
        return _new_tuple(BatchHeader, _unpack_header(view, position))
    except struct.error:
        raise CorruptBatch(
            f"{max(0, len(view) - position)} bytes at position {position}: a batch has at least {HEADER_BYTES}"
        ) from None


def check_batch(view: bytes | bytearray | memoryview) -> BatchHeader:
    """Parse the header of the one batch that fills `view`, and check its length, magic and crc.

    Raises:
        CorruptBatch: it is not one whole, undamaged batch.
    """
    header = parse_header(view)
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic}: only batches of version 2 are taken", ErrorCode.INVALID_RECORD)
    if header.length + LENGTH_END != len(view):
        raise CorruptBatch(f"batch says {header.length + LENGTH_END} bytes where {len(view)} are")
    if crc32c(memoryview(view)[CRC_START:]) != header.crc:
        raise CorruptBatch(f"crc of the batch at offset {header.base_offset} differs")
    return header


def split_batches(view: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """The whole batches in `view`, one after the other, as views without a copy.

    Ends before a batch that is cut off at the end (a fetch answer may do that). Checks no crc.

    Raises:
        CorruptBatch: a length is below that of an empty batch, or a magic is not 2.
    """
    whole = memoryview(view)
    position, end = 0, len(whole)
    while end - position >= HEADER_BYTES:
        length, _, magic = _unpack_length_and_magic(whole, position + 8)
        if length < HEADER_BYTES - LENGTH_END or magic != MAGIC:
            raise CorruptBatch(f"no batch at position {position}: length {length}, magic {magic}")
        batch_end = position + length + LENGTH_END
        if batch_end > end:
            return
        yield whole[position:batch_end]
        position = batch_end


def stamp(view: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into the batch. Both lie outside the crc, so nothing else changes."""
    _pack_offset(view, 0, base_offset)
    _pack_epoch(view, 12, leader_epoch)


def set_log_append_time(view: bytearray | memoryview, now_ms: int) -> BatchHeader:
    """Make `now_ms` the time of all records of the batch (message.timestamp.type=LogAppendTime); renews the crc."""
    (attributes,) = struct.unpack_from(">h", view, CRC_START)
    struct.pack_into(">h", view, CRC_START, attributes | TIMESTAMP_TYPE_MASK)
    _pack_offset(view, 35, now_ms)
    struct.pack_into(">I", view, 17, crc32c(memoryview(view)[CRC_START:]))
    return parse_header(view)
