"""Walks over the batches of a segment file, by headers alone or with every crc checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from appliance.base.disk import Disk
from appliance.log.indexes import OffsetIndex, TimeIndex
from appliance.log.producer_state import REMEMBERED_BATCHES
from appliance.records.batch import (
    CONTROL_MASK,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
    parse_header,
)
from appliance.records.errors import CorruptBatch

HEADERS_READ_BYTES = 64 << 10
BATCHES_READ_BYTES = 1 << 20
TAIL_READ_BYTES = 2 << 20
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Index entries hold offsets relative to the segment's base in 31 bits."""

_unpack_start = struct.Struct(">qiibIhi").unpack_from
_START_BYTES = 27
_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_unpack_size = struct.Struct(">8xi").unpack_from
_KNOWN_HEADERS_MAX = 16
_DECIDED_IN_ORDER = TRANSACTIONAL_MASK | CONTROL_MASK
_COPIED_MAX_BYTES = 4096
"""Up to this length a copy of a batch's bytes costs less than a view of them."""
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


@dataclass(slots=True)
class Tail:
    """How far a walk over the batches of one segment has come, and what it has seen."""

    base_offset: int
    """Of the segment."""
    index_interval_bytes: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    position: int = 0
    indexed_position: int = 0
    index: OffsetIndex = field(default_factory=OffsetIndex)
    time_index: TimeIndex = field(default_factory=TimeIndex)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(leader epoch, first offset) as the checked batches say, from earlier segments on."""
    producers: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    """The last headers of each producer id, five or more of them, old ones first."""
    first_timestamp: int | None = None
    """Of the first record of the segment; None if the walk began behind it."""
    has_transactions: bool = False
    """Whether one of the checked batches is transactional or a marker: then all must be looked at again, in order."""


def check_tail(disk: Disk, descriptor: int, tail: Tail, end: int) -> None:
    """Check every batch from where `tail` stands to `end`: what a start after a crash spends its time on.

    Raises:
        CorruptBatch: at the first batch that is not whole, whose crc differs, or whose offset or leader epoch cannot
            be; `tail` stands before it.
    """
    wanted = TAIL_READ_BYTES
    while tail.position < end:
        start = tail.position
        asked = min(wanted, end - start)
        chunk = disk.pread(descriptor, asked, start)
        if len(chunk) < HEADER_BYTES:
            raise CorruptBatch(f"{end - start} bytes at position {start}: no batch")
        _check_chunk(chunk, tail, end)
        if start == 0 and tail.position > 0:
            tail.first_timestamp = _unpack_header(chunk)[7]
        wanted = TAIL_READ_BYTES
        if tail.position == start:
            if len(chunk) < asked:
                raise CorruptBatch(f"the file ends inside the batch at position {start}")
            wanted = _unpack_size(chunk)[0] + LENGTH_END


def _check_chunk(chunk: bytes, tail: Tail, end: int) -> None:
    """Check the batches that are whole in the chunk. Plain and long, because it runs for every batch of a start."""
    view, size, start = memoryview(chunk), len(chunk), tail.position
    left = end - start
    base_offset = tail.base_offset
    highest = base_offset + RELATIVE_OFFSET_MAX
    expected, max_timestamp, max_timestamp_offset = tail.next_offset, tail.max_timestamp, tail.max_timestamp_offset
    latest_epoch = tail.epochs[-1][0] if tail.epochs else -1
    index_behind = tail.indexed_position + tail.index_interval_bytes - start
    producers = tail.producers
    at = 0
    try:
        while size - at >= HEADER_BYTES:
            header = _unpack_header(chunk, at)
            offset, length, epoch, magic, crc, attributes, delta, _, timestamp, producer_id, _, _, _ = header
            after = at + length + LENGTH_END
            if magic != MAGIC or length < _SMALLEST_LENGTH or after > left:
                raise _no_batch(start + at, length, magic, end)
            if after > size:
                break
            covered = chunk[at + CRC_START : after] if length < _COPIED_MAX_BYTES else view[at + CRC_START : after]
            if crc32c(covered) != crc:
                raise CorruptBatch(f"crc of the batch at offset {offset}, position {start + at}, differs")
            last_offset = offset + delta
            if offset < expected or delta < 0 or last_offset > highest:
                raise CorruptBatch(f"offset {offset} at position {start + at}, where {expected} is to come")
            if epoch != latest_epoch:
                if epoch < latest_epoch:
                    # A cut that was not durable: what was to go has come back behind what was written in its place.
                    raise CorruptBatch(f"leader epoch {epoch} at offset {offset}, behind one of {latest_epoch}")
                tail.epochs.append((epoch, offset))
                latest_epoch = epoch
            if timestamp > max_timestamp:
                max_timestamp, max_timestamp_offset = timestamp, last_offset
            if at > index_behind:
                tail.index.append(last_offset - base_offset, start + at)
                tail.time_index.append_if_later(max_timestamp, max_timestamp_offset - base_offset)
                tail.indexed_position = start + at
                index_behind = at + tail.index_interval_bytes
            if producer_id >= 0:
                if attributes & _DECIDED_IN_ORDER:
                    tail.has_transactions = True
                known = producers.get(producer_id)
                if known is None:
                    producers[producer_id] = [header]
                else:
                    known.append(header)
                    if len(known) > _KNOWN_HEADERS_MAX:
                        del known[:-REMEMBERED_BATCHES]
            expected = last_offset + 1
            at = after
    finally:
        tail.position = start + at
        tail.next_offset, tail.max_timestamp, tail.max_timestamp_offset = expected, max_timestamp, max_timestamp_offset


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


def base_offset_at(disk: Disk, descriptor: int, position: int, end: int) -> int:
    """The base offset of the batch that begins at `position`. Raises CorruptBatch: none does."""
    start = disk.pread(descriptor, _START_BYTES, position)
    if len(start) < _START_BYTES:
        raise CorruptBatch(f"{end - position} bytes at position {position}: no batch")
    base_offset, length, _, magic, _, _, _ = _unpack_start(start, 0)
    if magic != MAGIC or length < _SMALLEST_LENGTH or length + LENGTH_END > end - position:
        raise _no_batch(position, length, magic, end)
    return int(base_offset)


def _no_batch(position: int, length: int, magic: int, end: int) -> CorruptBatch:
    return CorruptBatch(f"no whole batch at position {position} of {end}: length {length}, magic {magic}")
