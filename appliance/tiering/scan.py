"""One pass over a segment's file: checksum, counts, both indexes, and the fate of its transactions.

Reads small pieces: a pass shares the interpreter with the event loop's thread, which gets its turn at each read.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from crc32c import crc32c

from appliance.records.batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL_MASK,
    parse_header,
)
from appliance.records.control import read_marker
from appliance.tiering.layout import (
    AbortedTransaction,
    CorruptObject,
    DecidedTransaction,
    Footer,
    OffsetEntry,
    TimeEntry,
)
from appliance.tiering.names import ObjectName

SCAN_BYTES = 256 << 10
_HEADER = struct.Struct(">qi4xb4xhiqqqh4xi")

ReadAt = Callable[[int, int], bytes]
"""Position and length to bytes; exactly as many, fewer only at the end."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer's transaction that has no marker yet."""

    first_offset: int
    producer_epoch: int


@dataclass(slots=True)
class SegmentScan:
    """What one pass found out. Times are -1 where there is no batch."""

    data_crc32c: int = 0
    batches: int = 0
    records: int = 0
    listed_records: int = 0
    """Records from the offset on where the manifest's item will begin."""
    first_timestamp: int = -1
    max_timestamp: int = -1
    next_offset: int = -1
    offset_index: list[OffsetEntry] = field(default_factory=list)
    time_index: list[TimeEntry] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    """By producer id, at the segment's end."""

    def footer(
        self, topic: str, topic_id: uuid.UUID, partition: int, name: ObjectName, data_length: int, created_ms: int
    ) -> Footer:
        """What the object of this name says about itself, whose data this is. Raises: CorruptObject."""
        if self.next_offset > name.end:
            raise CorruptObject(f"its records end at {self.next_offset}, above {name.end}")
        return Footer(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            start=name.start,
            end=name.end,
            epoch=name.epoch,
            seq=name.seq,
            data_length=data_length,
            data_crc32c=self.data_crc32c,
            records=self.records,
            batches=self.batches,
            first_timestamp=self.first_timestamp,
            max_timestamp=self.max_timestamp,
            created_ms=created_ms,
        )


def scan_segment(
    read_at: ReadAt,
    length: int,
    base_offset: int,
    *,
    listed_from: int,
    index_interval_bytes: int,
    open_transactions: Mapping[int, OpenTransaction],
) -> SegmentScan:
    """Scan the first `length` bytes of a segment whose first offset is `base_offset`.

    `open_transactions` are those open at `base_offset`, by producer id.
    Raises:
        CorruptObject: the bytes are not whole batches with rising offsets. OSError: from `read_at`.
    """
    scan = SegmentScan(next_offset=base_offset, open=dict(open_transactions))
    unindexed, newest_offset, indexed_time = 0, base_offset, -1
    for position, batch in _batches(read_at, length, scan):
        base, size, attributes, last_delta, max_timestamp, producer_id, producer_epoch, count = batch
        last_offset = base + last_delta
        if base < scan.next_offset or last_delta < 0:
            raise CorruptObject(f"batch at position {position} has offset {base} after {scan.next_offset - 1}")
        scan.next_offset = last_offset + 1
        scan.batches += 1
        scan.records += count
        if base >= listed_from:
            scan.listed_records += count
        if max_timestamp > scan.max_timestamp:
            scan.max_timestamp, newest_offset = max_timestamp, last_offset
        if unindexed > index_interval_bytes:
            scan.offset_index.append(OffsetEntry(last_offset - base_offset, position))
            if scan.max_timestamp > indexed_time:
                indexed_time = scan.max_timestamp
                scan.time_index.append(TimeEntry(indexed_time, newest_offset - base_offset))
            unindexed = 0
        unindexed += size
        if attributes & TRANSACTIONAL_MASK:
            if attributes & CONTROL_MASK:
                _decide(scan, read_at(position, size), producer_id, base)
            elif producer_id not in scan.open:
                scan.open[producer_id] = OpenTransaction(base, producer_epoch)
    if scan.max_timestamp > indexed_time:
        scan.time_index.append(TimeEntry(scan.max_timestamp, newest_offset - base_offset))
    return scan


def _decide(scan: SegmentScan, batch: bytes, producer_id: int, offset: int) -> None:
    marker = read_marker(batch)
    transaction = scan.open.pop(producer_id, None) if marker is not None else None
    if marker is not None and transaction is not None and not marker.is_commit:
        scan.aborted.append(AbortedTransaction(producer_id, transaction.first_offset, offset))


def _batches(
    read_at: ReadAt, length: int, scan: SegmentScan
) -> Iterator[tuple[int, tuple[int, int, int, int, int, int, int, int]]]:
    """Position and (base offset, size, attributes, last offset delta, max timestamp, producer id, epoch, records)."""
    held, held_position, held_end, position = b"", 0, 0, 0
    while position < length:
        while position + HEADER_BYTES > held_end:
            if held_end >= length:
                raise CorruptObject(f"{length - position} bytes at position {position} are no batch")
            piece = read_at(held_end, min(SCAN_BYTES, length - held_end))
            scan.data_crc32c = crc32c(piece, scan.data_crc32c)
            if position >= held_end:
                held, held_position = piece, held_end
            else:
                held, held_position = held[position - held_position :] + piece, position
            held_end += len(piece)
        base, batch_length, magic, attributes, last_delta, base_timestamp, max_timestamp, producer_id, epoch, count = (
            _HEADER.unpack_from(held, position - held_position)
        )
        size = batch_length + LENGTH_END
        if magic != MAGIC or size < HEADER_BYTES or position + size > length:
            raise CorruptObject(f"no batch at position {position}: {size} bytes, magic {magic}")
        if scan.first_timestamp < 0:
            scan.first_timestamp = base_timestamp
        yield position, (base, size, attributes, last_delta, max_timestamp, producer_id, epoch, count)
        position += size
    while held_end < length:
        piece = read_at(held_end, min(SCAN_BYTES, length - held_end))
        scan.data_crc32c = crc32c(piece, scan.data_crc32c)
        held_end += len(piece)


def find_markers(
    batches: Iterator[bytes | memoryview],
    open_transactions: Mapping[int, OpenTransaction],
    *,
    all_are_there: bool = True,
) -> tuple[list[AbortedTransaction], list[DecidedTransaction]]:
    """How the transactions that are open at a segment's end were decided behind it.

    `batches` begin at the segment's end; they are read up to the last marker that is wanted.
    `all_are_there`: no marker is missing; compaction removes those of transactions without records.
    Returns: the aborted ones among them, and all of them.
    """
    missing = dict(open_transactions)
    aborted, decided = [], []
    while missing:
        batch = next(batches, None)
        if batch is None and not all_are_there:
            break
        if batch is None:
            raise CorruptObject(f"no marker in the log for the transactions of producers {sorted(missing)}")
        header = parse_header(batch)
        if not (header.is_transactional and header.is_control and header.producer_id in missing):
            continue
        marker = read_marker(batch)
        if marker is None:
            continue
        transaction = missing.pop(header.producer_id)
        if not marker.is_commit:
            aborted.append(AbortedTransaction(header.producer_id, transaction.first_offset, header.base_offset))
        decided.append(
            DecidedTransaction(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                transaction.first_offset,
                header.base_offset,
                marker.control_type,
            )
        )
    return aborted, decided
