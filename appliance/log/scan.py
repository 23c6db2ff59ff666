"""Walks over the batches of a segment file, by headers alone or with every crc checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

from appliance.base.disk import Disk
from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader, parse_header
from appliance.records.errors import CorruptBatch

HEADERS_READ_BYTES = 64 << 10
BATCHES_READ_BYTES = 1 << 20
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Index entries hold offsets relative to the segment's base in 31 bits."""

_unpack_start = struct.Struct(">qiibIhi").unpack_from
_START_BYTES = 27
_SMALLEST_LENGTH = HEADER_BYTES - LENGTH_END


def walk_headers(
    disk: Disk, descriptor: int, position: int, end: int, base_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch in [position, end) of the file of the segment that begins at `base_offset`.

    Reads little where batches are large.

    Raises:
        CorruptBatch: at the first place where no whole batch stands, or its offsets cannot be.
    """
    chunk, chunk_start = b"", position
    expected, highest = base_offset, base_offset + RELATIVE_OFFSET_MAX
    while position < end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = disk.pread(descriptor, min(HEADERS_READ_BYTES, end - position), position)
            chunk_start, at = position, 0
        if end - position < HEADER_BYTES or len(chunk) < HEADER_BYTES:
            raise CorruptBatch(f"{end - position} bytes at position {position}: no batch")
        header = parse_header(chunk, at)
        if header.magic != MAGIC or header.length < _SMALLEST_LENGTH or header.length + LENGTH_END > end - position:
            raise _no_batch(position, header.length, header.magic, end)
        # No crc covers the base offset.
        if header.base_offset < expected or header.last_offset_delta < 0 or header.last_offset > highest:
            raise CorruptBatch(f"offset {header.base_offset} at position {position}, where {expected} is to come")
        yield position, header
        expected = header.next_offset
        position += header.length + LENGTH_END


def walk_batches(
    disk: Disk, descriptor: int, position: int, end: int, base_offset: int, read_bytes: int = BATCHES_READ_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch in [position, end) of a segment's file, with its crc checked.

    Raises:
        CorruptBatch: at the first batch that is not whole, whose crc differs, or whose offsets cannot be.
    """
    expected, highest = base_offset, base_offset + RELATIVE_OFFSET_MAX
    while position < end:
        chunk = memoryview(disk.pread(descriptor, min(read_bytes, end - position), position))
        if len(chunk) < HEADER_BYTES:
            raise CorruptBatch(f"{end - position} bytes at position {position}: no batch")
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            header = parse_header(chunk, at)
            size = header.length + LENGTH_END
            if header.magic != MAGIC or size < HEADER_BYTES or size > end - position:
                raise _no_batch(position, header.length, header.magic, end)
            if at + size > len(chunk):
                if at == 0:
                    chunk = memoryview(disk.pread(descriptor, size, position))
                    if len(chunk) < size:
                        raise CorruptBatch(f"the file ends inside the batch at position {position}")
                else:
                    break
            batch = chunk[at : at + size]
            if crc32c(batch[CRC_START:]) != header.crc:
                raise CorruptBatch(f"crc of the batch at offset {header.base_offset}, position {position}, differs")
            if header.base_offset < expected or header.last_offset_delta < 0 or header.last_offset > highest:
                raise CorruptBatch(f"offset {header.base_offset} at position {position}, where {expected} is to come")
            yield position, header, batch
            expected = header.next_offset
            at += size
            position += size


def find_batch(disk: Disk, descriptor: int, position: int, end: int, offset: int) -> tuple[int, int]:
    """Walk from the batch at `position` to the first one that ends at or above `offset`: its position and size.

    Returns `(end, 0)` if there is none before `end`.

    Raises:
        CorruptBatch: no whole batch stands where one should.
    """
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _START_BYTES > len(chunk):
            # An index entry stands every 4 KiB; this mostly finds the batch with one read.
            chunk = disk.pread(descriptor, min(8192, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < _START_BYTES:
                raise CorruptBatch(f"{end - position} bytes at position {position}: no batch")
        base_offset, length, _, magic, _, _, last_offset_delta = _unpack_start(chunk, at)
        if magic != MAGIC or length < _SMALLEST_LENGTH or length + LENGTH_END > end - position:
            raise _no_batch(position, length, magic, end)
        if base_offset + last_offset_delta >= offset:
            return position, length + LENGTH_END
        position += length + LENGTH_END
    return end, 0


def last_end_at_most(disk: Disk, descriptor: int, position: int, end: int, limit: int) -> int:
    """Walk from the batch at `position` to the last batch end that is not above `limit`; all within [position, end].

    Raises:
        CorruptBatch: no whole batch stands where one should.
    """
    chunk, chunk_start = b"", position
    while position < end:
        at = position - chunk_start
        if at + _START_BYTES > len(chunk):
            chunk = disk.pread(descriptor, min(8192, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < _START_BYTES:
                raise CorruptBatch(f"{end - position} bytes at position {position}: no batch")
        _, length, _, magic, _, _, _ = _unpack_start(chunk, at)
        if magic != MAGIC or length < _SMALLEST_LENGTH or length + LENGTH_END > end - position:
            raise _no_batch(position, length, magic, end)
        if position + length + LENGTH_END > limit:
            return position
        position += length + LENGTH_END
    return position


def _no_batch(position: int, length: int, magic: int, end: int) -> CorruptBatch:
    return CorruptBatch(f"no whole batch at position {position} of {end}: length {length}, magic {magic}")
