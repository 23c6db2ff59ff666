"""Record batches to Arrow, in bulk: which batches, which rows and which columns; `decode_numpy` reads the records.

Columns are those of Spark's Kafka source: key, value (binary), topic (string), partition (int), offset (long),
timestamp (microseconds, UTC), timestampType (int), headers (array of key and value); and `tier` if asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from appliance.base.ids import TopicPartition
from appliance.records.batch import HEADER_BYTES, BatchHeader, check_batch, parse_header, split_batches
from appliance.records.compression import decompress
from spark.aborted import NOBODY_ABORTED, AbortedFilter, AbortedRange
from spark.decode_native import read_columns
from spark.decode_numpy import HEADER_TYPE, NO_APPEND_TIME, TIMESTAMP_TYPE, Piece

ROWS_PER_ARROW_BATCH = 32_768
BYTES_PER_ARROW_BATCH = 1024 * 1024
"""Spark is quickest with Arrow batches of 256 KiB to 1 MiB."""

FIELDS = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "topic": pa.field("topic", pa.string()),
    "partition": pa.field("partition", pa.int32()),
    "offset": pa.field("offset", pa.int64()),
    "timestamp": pa.field("timestamp", TIMESTAMP_TYPE),
    "timestampType": pa.field("timestampType", pa.int32()),
    "headers": pa.field("headers", pa.list_(HEADER_TYPE)),
    "tier": pa.field("tier", pa.string()),
}
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
OF_RECORDS = frozenset(("key", "value", "offset", "timestamp", "headers"))
"""Columns whose cells differ from record to record; the others are one cell for many rows."""


class Chunk(NamedTuple):
    """Whole batches (the last may be cut off), and what was aborted in their range, if that is to be left out."""

    records: bytes | memoryview
    aborted: Sequence[AbortedRange] = NOBODY_ABORTED


class Decoder:
    """Turns the batches of one split into Arrow record batches of one schema.

    Args:
        columns: names out of `FIELDS`, in the order of the rows.
        tier: what the column `tier` says.
        verify_crc: check each batch's CRC-32C.
    """

    def __init__(self, columns: Sequence[str], tp: TopicPartition, tier: str, verify_crc: bool) -> None:
        self.schema = pa.schema([FIELDS[name] for name in columns])
        self._columns = tuple(columns)
        self._of_records = OF_RECORDS & set(columns)
        self._tp = tp
        self._tier = tier
        self._verify_crc = verify_crc
        self._aborted = AbortedFilter()
        self._columns_of_one: dict[tuple[str, str | int], pa.Array] = {}
        self.next_offset = -1
        """Behind the last batch that was decoded, at least `end` once one lies behind it; -1 before the first."""
        self.last_epoch = -1
        """The leader epoch of the last batch that was decoded."""

    def decode(self, chunks: Iterable[Chunk], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows with offsets in [start, end). What was handed out reaches up to `next_offset` at each step.

        Raises:
            CorruptBatch: bytes that are not what their batch promises.
        """
        group = _Group(start, end, self._of_records)
        for chunk in chunks:
            self._aborted.learn(chunk.aborted)
            for batch in split_batches(chunk.records):
                header = parse_header(batch)
                if header.next_offset <= start:
                    continue
                if header.base_offset >= end:
                    # What lies between holds no records any more: compaction leaves such holes.
                    self.next_offset = max(self.next_offset, end)
                    break
                if self._verify_crc:
                    check_batch(batch)
                if not group.takes(header):
                    yield from self._arrow(group)
                    group = _Group(start, end, self._of_records)
                if not self._aborted.drops(header) and header.record_count:
                    group.add(header, batch)
                self.next_offset, self.last_epoch = header.next_offset, header.partition_leader_epoch
        yield from self._arrow(group)

    def _arrow(self, group: _Group) -> Iterator[pa.RecordBatch]:
        if not group.rows:
            return
        found = group.columns()
        arrays = []
        for name in self._columns:
            match name:
                case "topic":
                    array = self._same(name, self._tp.topic, group.rows)
                case "partition":
                    array = self._same(name, self._tp.partition, group.rows)
                case "tier":
                    array = self._same(name, self._tier, group.rows)
                case "timestampType":
                    array = self._same(name, group.timestamp_type, group.rows)
                case _:
                    array = found[name]
            arrays.append(array)
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if group.crosses_an_edge:
            rows = rows.filter(group.kept(found["offset"]))
        if rows.num_rows:
            yield rows

    def _same(self, name: str, cell: str | int, rows: int) -> pa.Array:
        """A column of one cell: a slice of the longest one that was made so far."""
        longest = self._columns_of_one.get((name, cell))
        if longest is None or len(longest) < rows:
            longest = self._columns_of_one[name, cell] = pa.repeat(pa.scalar(cell, FIELDS[name].type), rows)
        return longest.slice(0, rows)


class _Group:
    """The batches of one Arrow batch while it grows; `names` are the wanted columns that differ from row to row."""

    def __init__(self, start: int, end: int, names: frozenset[str]) -> None:
        self.rows = 0
        self.crosses_an_edge = False
        self.timestamp_type = 0
        self._start, self._end, self._names = start, end, names
        self._bytes = 0
        self._pieces: list[Piece] = []
        self._is_opened = False

    def takes(self, header: BatchHeader) -> bool:
        """Whether a further batch may go into this group: there is room, and it is of the same kind."""
        if not self.rows:
            return True
        is_full = self.rows >= ROWS_PER_ARROW_BATCH or self._bytes >= BYTES_PER_ARROW_BATCH
        return not (
            is_full or header.timestamp_type != self.timestamp_type or self._must_open(header) != self._is_opened
        )

    def _must_open(self, header: BatchHeader) -> bool:
        """Offsets without holes stand in the header."""
        return not self._names <= {"offset"} or header.record_count != header.last_offset_delta + 1

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Take a batch's records. Raises: CorruptBatch."""
        self.timestamp_type, self._is_opened = header.timestamp_type, self._must_open(header)
        body = decompress(header.codec, batch[HEADER_BYTES:]) if self._is_opened else b""
        append_time = header.max_timestamp if header.timestamp_type else NO_APPEND_TIME
        piece = Piece(body, header.record_count, header.base_offset, header.base_timestamp, append_time)
        self._pieces.append(piece)
        self._bytes += len(body)
        self.rows += header.record_count
        self.crosses_an_edge |= header.base_offset < self._start or header.next_offset > self._end

    def columns(self) -> dict[str, pa.Array]:
        """The wanted columns, and offsets when rows must be cut off by them. Raises: CorruptBatch."""
        names = self._names | {"offset"} if self.crosses_an_edge else self._names
        if self._is_opened:
            return read_columns(self._pieces, names)
        ranges = [np.arange(piece.base_offset, piece.base_offset + piece.records) for piece in self._pieces]
        return {"offset": pa.array(np.concatenate(ranges))}

    def kept(self, offsets: pa.Array) -> pa.Array:
        """Which rows lie in [start, end)."""
        numbers = offsets.to_numpy()
        return pa.array((numbers >= self._start) & (numbers < self._end))
