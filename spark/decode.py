"""Record batches to Arrow, in bulk. Pure but for pyarrow.

Columns are those of Spark's Kafka source: key, value (binary), topic (string), partition (int), offset (long),
timestamp (microseconds, UTC), timestampType (int), headers (array of key and value); and `tier` if asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from appliance.base.ids import TopicPartition
from appliance.records.batch import check_batch, parse_header, split_batches
from appliance.records.reader import read_records

ROWS_PER_ARROW_BATCH = 32_768
BYTES_PER_ARROW_BATCH = 1024 * 1024
"""Spark is quickest with Arrow batches of 256 KiB to 1 MiB."""

FIELDS = {
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "topic": pa.field("topic", pa.string()),
    "partition": pa.field("partition", pa.int32()),
    "offset": pa.field("offset", pa.int64()),
    "timestamp": pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": pa.field("timestampType", pa.int32()),
    "headers": pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    "tier": pa.field("tier", pa.string()),
}
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


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
        self._tp = tp
        self._tier = tier
        self._verify_crc = verify_crc
        self.next_offset = -1
        """Behind the last batch that was decoded; -1 before the first."""

    def decode(self, chunks: Iterable[bytes | memoryview], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Rows with offsets in [start, end), from chunks of whole batches (the last may be cut off).

        Raises:
            CorruptBatch: bytes that are not what their batch promises.
        """
        rows = _Rows(self._columns)
        for chunk in chunks:
            for batch in split_batches(memoryview(chunk)):
                header = parse_header(batch)
                if header.next_offset <= start:
                    continue
                if header.base_offset >= end:
                    break
                if self._verify_crc:
                    check_batch(batch)
                if not header.is_control:
                    rows.add(batch, header.timestamp_type, start, end)
                self.next_offset = header.next_offset
                if rows.is_full:
                    yield self._arrow(rows)
                    rows = _Rows(self._columns)
        if rows.count:
            yield self._arrow(rows)

    def _arrow(self, rows: _Rows) -> pa.RecordBatch:
        arrays = []
        for name in self._columns:
            match name:
                case "topic":
                    array = pa.repeat(pa.scalar(self._tp.topic, pa.string()), rows.count)
                case "partition":
                    array = pa.repeat(pa.scalar(self._tp.partition, pa.int32()), rows.count)
                case "tier":
                    array = pa.repeat(pa.scalar(self._tier, pa.string()), rows.count)
                case "timestamp":
                    array = pa.array(rows.timestamps, pa.timestamp("ms", tz="UTC")).cast(FIELDS[name].type)
                case _:
                    array = pa.array(rows.values[name], FIELDS[name].type)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Rows:
    """The cells of one Arrow batch while it grows; columns that nobody wants are not kept."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.count = 0
        self.bytes = 0
        self.timestamps: list[int] = []
        self.values: dict[str, list[object]] = {name: [] for name in columns}

    @property
    def is_full(self) -> bool:
        return self.count >= ROWS_PER_ARROW_BATCH or self.bytes >= BYTES_PER_ARROW_BATCH

    def add(self, batch: memoryview, timestamp_type: int, start: int, end: int) -> None:
        """The records of a batch with offsets in [start, end)."""
        records = [record for record in read_records(batch) if start <= record.offset < end]
        values = self.values
        if "key" in values:
            values["key"] += [record.key for record in records]
        if "value" in values:
            values["value"] += [record.value for record in records]
        if "offset" in values:
            values["offset"] += [record.offset for record in records]
        if "timestamp" in values:
            self.timestamps += [record.timestamp for record in records]
        if "timestampType" in values:
            values["timestampType"] += [timestamp_type] * len(records)
        if "headers" in values:
            # Spark's own source gives null, not an empty list, to a record without headers.
            values["headers"] += [
                [{"key": name, "value": value} for name, value in record.headers] or None for record in records
            ]
        self.count += len(records)
        self.bytes += len(batch)
