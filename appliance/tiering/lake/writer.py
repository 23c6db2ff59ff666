"""Carries out a plan: records in offset order to Parquet files in a folder of the worker's own (K2).

Everything here depends on the plan and its records alone, so that two workers make the same files.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from appliance.tiering.lake.decoders import Decoder, decoded, decoder_of, inferred
from appliance.tiering.lake.ledger import Ledger, Plan
from appliance.tiering.lake.names import DATA, DEAD, file_name
from appliance.tiering.lake.partitioning import Partitioner
from appliance.tiering.lake.rows import Records, committed_records
from appliance.tiering.lake.schema import parse_schema, schema_text
from appliance.tiering.lake.spec import ICEBERG, LakeSpec
from appliance.tiering.reader import TierReader

OFFSET = "_offset"
OWN_FIELDS = (
    pa.field("_topic", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field(OFFSET, pa.int64()),
    pa.field("_timestamp", pa.timestamp("ms", tz="UTC")),
    pa.field("_key", pa.binary()),
)
"""In every row, before the value's own columns."""
DEAD_SCHEMA = pa.schema([*OWN_FIELDS, pa.field("value", pa.binary()), pa.field("error", pa.string())])

OPEN_MAX = 64
"""Files that are open at once; of more folders the one that was not written to for longest is closed."""
BUFFER_BYTES = 32 << 20
"""Rows in memory over all open files; then each gets what it has as a row group."""
ROW_GROUP_ROWS = 262_144
KEPT_BYTES = 32 << 20
"""What the search for columns has read of a small plan is not read again."""


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A whole file that lies in the worker's folder."""

    kind: str
    name: str
    """Relative to the output's folder."""
    path: Path
    start: int
    end: int
    rows: int


@dataclass(slots=True)
class _OpenFile:
    kind: str
    name: str
    path: Path
    start: int
    sink: Any
    parquet: Any
    tables: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    buffered_rows: int = 0
    rows: int = 0
    end: int = 0

    def flush(self) -> None:
        if self.tables:
            self.parquet.write_table(pa.concat_tables(self.tables).combine_chunks(), row_group_size=ROW_GROUP_ROWS)
            self.tables, self.bytes, self.buffered_rows = [], 0, 0


class PlanWriter:
    """One plan of one partition."""

    def __init__(
        self,
        ledger: Ledger,
        plan: Plan,
        reader: TierReader,
        folder: Path,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Raises: BadSpec."""
        self._ledger = ledger
        self._plan = plan
        self._reader = reader
        self._folder = folder
        self._stopping = stopping
        self._decoder: Decoder = decoder_of(plan.spec)
        self._partitioner = Partitioner(plan.spec)
        self._open: OrderedDict[tuple[str, str], _OpenFile] = OrderedDict()
        self._numbers = 0
        self._buffered = 0
        self._kept: list[Records] | None = []
        self.schema = ""
        """Of the value's columns, once the files are made."""

    def files(self) -> Iterator[MadeFile]:
        """All files, each when it is whole.

        Raises: Interrupted, TierDataLoss, TierNotCovering, ObjectStoreError, CorruptObject, CorruptBatch, OSError.
        """
        values = self._decoder.fixed_schema
        if values is None:
            values = self._found_schema()
        self.schema = schema_text(values)
        columns = columns_of(values, self._plan.spec)
        self._data_schema = pa.schema([*OWN_FIELDS, *(pa.field(own, values.field(name).type) for name, own in columns)])
        try:
            for piece in self._records():
                yield from self._add(piece, values, columns)
            yield from self._closed(len(self._open))
        finally:
            for one in self._open.values():
                one.sink.close()

    def _records(self) -> Iterator[Records]:
        if self._kept:
            yield from self._kept
            return
        plan, ledger = self._plan, self._ledger
        yield from committed_records(
            self._reader, ledger.topic_id, ledger.partition, plan.start, plan.end, self._stopping
        )

    def _found_schema(self) -> pa.Schema:
        settled = parse_schema(self._plan.schema) if self._plan.schema else pa.schema([])
        known, size = settled, 0
        kept: list[Records] | None = []
        self._kept = None
        for piece in self._records():
            known = inferred(self._decoder, piece.values, known, settled)
            size += piece.bytes
            if kept is not None:
                kept = [*kept, piece] if size <= KEPT_BYTES else None
        self._kept = kept
        return known

    def _add(self, piece: Records, values: pa.Schema, columns: Sequence[tuple[str, str]]) -> Iterator[MadeFile]:
        table, places, dead = decoded(self._decoder, piece.values, values)
        reasons = {letter.place: letter.reason for letter in dead}
        whole = len(places) == len(piece.offsets)
        times = piece.timestamps_ms if whole else [piece.timestamps_ms[place] for place in places]
        folders, without = self._partitioner.folders(table, times)
        for letter in without:
            reasons.setdefault(places[letter.place], letter.reason)
            folders[letter.place] = DEAD
        own = self._own_columns(piece, None if whole else places)
        rows = pa.table([*own, *(table.column(name) for name, _ in columns)], schema=self._data_schema)
        for folder, among in _groups(folders):
            if folder != DEAD:
                yield from self._write(DATA, folder, rows if among is None else rows.take(among))
        if reasons:
            bad = sorted(reasons)
            own = self._own_columns(piece, bad)
            found = [pa.array([piece.values[at] for at in bad], pa.binary()), pa.array([reasons[at] for at in bad])]
            yield from self._write(DEAD, "", pa.table([*own, *found], schema=DEAD_SCHEMA))

    def _own_columns(self, piece: Records, places: list[int] | None) -> list[pa.Array]:
        offsets, times, keys = piece.offsets, piece.timestamps_ms, piece.keys
        if places is not None:
            offsets, times, keys = ([column[place] for place in places] for column in (offsets, times, keys))  # type: ignore[assignment]
        count = len(offsets)
        topic, partition, offset, timestamp, key = (one.type for one in OWN_FIELDS)
        return [
            pa.repeat(pa.scalar(self._ledger.topic, topic), count),
            pa.repeat(pa.scalar(self._ledger.partition, partition), count),
            pa.array(offsets, offset),
            pa.array(times, pa.int64()).cast(timestamp),
            pa.array(keys, key),
        ]

    def _write(self, kind: str, folder: str, rows: pa.Table) -> Iterator[MadeFile]:
        if not rows.num_rows:
            return
        one = self._open.get((kind, folder))
        if one is None:
            if len(self._open) >= OPEN_MAX:
                yield from self._closed(1)
            one = self._opened(kind, folder, rows)
        self._open.move_to_end((kind, folder))
        one.tables.append(rows)
        one.bytes += rows.nbytes
        self._buffered += rows.nbytes
        one.buffered_rows += rows.num_rows
        one.rows += rows.num_rows
        one.end = rows.column(OFFSET)[-1].as_py() + 1
        if self._buffered >= BUFFER_BYTES:
            for each in self._open.values():
                each.flush()
            self._buffered = 0
        elif one.buffered_rows >= ROW_GROUP_ROWS:
            self._buffered -= one.bytes
            one.flush()
        if one.sink.tell() >= self._plan.spec.max_bytes:
            self._open.move_to_end((kind, folder), last=False)
            yield from self._closed(1)

    def _opened(self, kind: str, folder: str, rows: pa.Table) -> _OpenFile:
        name = file_name(kind, folder, self._ledger.partition, self._plan.no, self._numbers)
        path = self._folder / f"{self._numbers:06}.parquet"
        self._numbers += 1
        sink = pa.OSFile(str(path), "wb")
        parquet = pq.ParquetWriter(sink, rows.schema, compression="zstd")
        one = _OpenFile(kind, name, path, rows.column(OFFSET)[0].as_py(), sink, parquet)
        self._open[kind, folder] = one
        return one

    def _closed(self, count: int) -> Iterator[MadeFile]:
        """Close the files that come first."""
        for _ in range(count):
            _, one = self._open.popitem(last=False)
            self._buffered -= one.bytes
            try:
                one.flush()
                one.parquet.close()
            finally:
                one.sink.close()
            yield MadeFile(one.kind, one.name, one.path, one.start, one.end, one.rows)


def file_schema(values: pa.Schema | None) -> pa.Schema:
    """The columns of an Iceberg table for values of this schema."""
    if values is None:
        return pa.schema(OWN_FIELDS)
    columns = columns_of(values, LakeSpec(format=ICEBERG))
    return pa.schema([*OWN_FIELDS, *(pa.field(own, values.field(name).type) for name, own in columns)])


def columns_of(values: pa.Schema, spec: LakeSpec) -> list[tuple[str, str]]:
    """The value's columns and what they are called in files: not as ours, nor as those that name folders.

    A field that names folders is no column of the files: readers find it in the folder's name. Readers of an Iceberg
    table do not, so theirs have it.
    """
    in_folders = set() if spec.format == ICEBERG else set(Partitioner(spec).names)
    taken = {one.name for one in OWN_FIELDS} | {name for name in in_folders if name not in spec.partition_by}
    found = []
    for name in values.names:
        if name in in_folders and name in spec.partition_by:
            continue
        own = name
        while own in taken:
            own += "_"
        taken.add(own)
        found.append((name, own))
    return found


def _groups(folders: list[str]) -> Iterator[tuple[str, pa.Array | None]]:
    """Each folder with the places of its rows, in the order of the first ones; None: all rows."""
    if folders and folders.count(folders[0]) == len(folders):
        yield folders[0], None
        return
    places: dict[str, list[int]] = {}
    for place, folder in enumerate(folders):
        places.setdefault(folder, []).append(place)
    for folder, among in places.items():
        yield folder, pa.array(among, pa.int64())
