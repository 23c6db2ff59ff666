"""The bytes of a segment object: raw batches, what a reader needs beside them, a footer and a trailer.

```
data       [0, data_length)   record batches as on disk, so a position in the log is a position in the object
sections   offset_index   u32 offset - start, u32 position                     (Kafka's .index)
           time_index     i64 timestamp, u32 offset - start                    (Kafka's .timeindex)
           aborted        i64 producer id, i64 first, i64 last                 each aborted transaction that overlaps
           decided        i64 producer id, i16 producer epoch, i32 coordinator epoch, i64 first, i64 marker, i8 outcome
           producers      producer snapshot at `end`                           (Kafka's .snapshot)
           epochs         i32 epoch, i64 start offset: the lineage up to `end`
footer     JSON, see `Footer`
trailer    u64 object length, u64 footer position, u32 footer length, u32 footer crc32c, u32 version, u32 0, "APPLSEG1"
```
Integers are big-endian. `start` is the segment's base offset; the manifest may list a later part of the object only.
`last` is the offset of the transaction's marker. `decided` holds the transactions that are open at `end`, whose marker
lies at or beyond it; `outcome` is Kafka's control type (0 abort, 1 commit). One suffix read brings all but the data.
"""

from __future__ import annotations

import json
import struct
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, overload

from crc32c import crc32c

from appliance.base.ids import uuid_from_text, uuid_to_text

MAGIC = b"APPLSEG1"
VERSION = 1
FORMAT = "appliance segment"

_TRAILER = struct.Struct(">QQIIII8s")
_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_ABORTED = struct.Struct(">qqq")
_DECIDED = struct.Struct(">qhiqqb")
_EPOCH = struct.Struct(">iq")

TRAILER_BYTES = _TRAILER.size
TAIL_MAX_BYTES = 512 << 20
"""No tail is larger; a manifest that says otherwise is damaged."""


class CorruptObject(ValueError):
    """An object of the tier is not what its name, its footer or the manifest says."""


class OffsetEntry(NamedTuple):
    """Records up to `relative_offset` (of the last record of a batch) begin at or before `position`."""

    relative_offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to this one is younger than `timestamp`."""

    timestamp: int
    relative_offset: int


class AbortedTransaction(NamedTuple):
    """Records of a producer from `first_offset` to `last_offset`, the offset of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class DecidedTransaction(NamedTuple):
    """A transaction that is open at the object's end and was decided behind it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    marker_offset: int
    outcome: int


class EpochEntry(NamedTuple):
    """The leader epoch of records from `start_offset` on."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class Footer:
    """What an object says about itself. Times are milliseconds since the epoch, -1 where there is no record."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    start: int
    end: int
    epoch: int
    seq: int
    data_length: int
    data_crc32c: int
    records: int
    batches: int
    first_timestamp: int
    max_timestamp: int
    created_ms: int


Entry = TypeVar("Entry")


class PackedEntries(Sequence[Entry]):
    """Entries as they lie in a section, unpacked when looked at: an index of a large segment has 250,000."""

    __slots__ = ("_data", "_layout", "_make")

    def __init__(self, layout: struct.Struct, make: Callable[[Iterable[Any]], Entry], data: bytes) -> None:
        if len(data) % layout.size:
            raise CorruptObject(f"{len(data)} bytes are no entries of {layout.size} bytes")
        self._layout, self._make, self._data = layout, make, data

    def __len__(self) -> int:
        return len(self._data) // self._layout.size

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._make(self._layout.unpack_from(self._data, index % len(self) * self._layout.size))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class SegmentTail:
    """Everything of an object but its data."""

    footer: Footer
    offset_index: Sequence[OffsetEntry] = ()
    time_index: Sequence[TimeEntry] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    decided: tuple[DecidedTransaction, ...] = ()
    producers: bytes = field(default=b"", repr=False)
    epochs: tuple[EpochEntry, ...] = ()

    def position_of(self, offset: int) -> int:
        """Where to begin to read for `offset`: a batch's position, at or before the batch that holds it."""
        # The entry of a batch carries its last offset, so the entry found may be the batch that holds `offset`.
        found = bisect_right(self.offset_index, offset - self.footer.start, key=lambda entry: entry.relative_offset)
        return self.offset_index[found - 1].position if found else 0

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`; the object's start when none is known."""
        found = bisect_left(self.time_index, timestamp, key=lambda entry: entry.timestamp)
        return self.footer.start + (self.time_index[found - 1].relative_offset if found else 0)

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions that overlap [start, end)."""
        return [entry for entry in self.aborted if entry.first_offset < end and entry.last_offset >= start]

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 when it is older than the lineage."""
        found = bisect_right(self.epochs, offset, key=lambda entry: entry.start_offset)
        return self.epochs[found - 1].epoch if found else -1


def encode_tail(tail: SegmentTail) -> bytes:
    """Sections, footer and trailer, as they follow `data_length` bytes of data."""
    footer = tail.footer
    sections = {
        "offset_index": _pack(_OFFSET_ENTRY, tail.offset_index),
        "time_index": _pack(_TIME_ENTRY, tail.time_index),
        "aborted": _pack(_ABORTED, tail.aborted),
        "decided": _pack(_DECIDED, tail.decided),
        "producers": tail.producers,
        "epochs": _pack(_EPOCH, tail.epochs),
    }
    position = footer.data_length
    table: dict[str, list[int]] = {}
    for name, data in sections.items():
        table[name] = [position, len(data), crc32c(data)]
        position += len(data)
    text = json.dumps(
        {
            "format": FORMAT,
            "topic": footer.topic,
            "topic_id": uuid_to_text(footer.topic_id),
            "partition": footer.partition,
            "start": footer.start,
            "end": footer.end,
            "epoch": footer.epoch,
            "seq": footer.seq,
            "data_length": footer.data_length,
            "data_crc32c": footer.data_crc32c,
            "records": footer.records,
            "batches": footer.batches,
            "first_timestamp": footer.first_timestamp,
            "max_timestamp": footer.max_timestamp,
            "created_ms": footer.created_ms,
            "key_id": None,
            "salt": None,
            "sections": table,
        },
        separators=(",", ":"),
    ).encode("ascii")
    object_length = position + len(text) + TRAILER_BYTES
    trailer = _TRAILER.pack(object_length, position, len(text), crc32c(text), VERSION, 0, MAGIC)
    return b"".join([*sections.values(), text, trailer])


def parse_tail(data: bytes, object_size: int) -> SegmentTail:
    """Read the last bytes of an object of `object_size` bytes: all of them from the first section on, or more.

    Raises:
        CorruptObject: a length, a checksum, the magic or the version is not as it must be.
    """
    if len(data) < TRAILER_BYTES:
        raise CorruptObject(f"{len(data)} bytes cannot end a segment object")
    length, position, footer_length, footer_crc, version, _, magic = _TRAILER.unpack(data[-TRAILER_BYTES:])
    if magic != MAGIC or version != VERSION:
        raise CorruptObject(f"no segment object of version {VERSION}: magic {magic!r}, version {version}")
    begin = object_size - len(data)
    if length != object_size or position + footer_length + TRAILER_BYTES != length or position < begin:
        raise CorruptObject(f"object of {object_size} bytes says {length}, footer at {position}")
    text = data[position - begin : position - begin + footer_length]
    if crc32c(text) != footer_crc:
        raise CorruptObject("crc of the footer differs")
    try:
        values = json.loads(text)
        footer = _footer(values)
        sections = {name: _section(data, begin, place) for name, place in values["sections"].items()}
        return SegmentTail(
            footer,
            PackedEntries(_OFFSET_ENTRY, OffsetEntry._make, sections["offset_index"]),
            PackedEntries(_TIME_ENTRY, TimeEntry._make, sections["time_index"]),
            _unpack(_ABORTED, AbortedTransaction._make, sections["aborted"]),
            _unpack(_DECIDED, DecidedTransaction._make, sections["decided"]),
            sections["producers"],
            _unpack(_EPOCH, EpochEntry._make, sections["epochs"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        raise CorruptObject(f"footer or sections damaged: {error!r}") from error


def _footer(values: dict[str, Any]) -> Footer:
    if values["format"] != FORMAT:
        raise CorruptObject(f"footer of another format: {values['format']!r}")
    return Footer(
        topic=str(values["topic"]),
        topic_id=uuid_from_text(values["topic_id"]),
        partition=int(values["partition"]),
        start=int(values["start"]),
        end=int(values["end"]),
        epoch=int(values["epoch"]),
        seq=int(values["seq"]),
        data_length=int(values["data_length"]),
        data_crc32c=int(values["data_crc32c"]),
        records=int(values["records"]),
        batches=int(values["batches"]),
        first_timestamp=int(values["first_timestamp"]),
        max_timestamp=int(values["max_timestamp"]),
        created_ms=int(values["created_ms"]),
    )


def _section(data: bytes, begin: int, place: Sequence[int]) -> bytes:
    position, length, crc = place
    if position < begin or length < 0 or position + length > begin + len(data):
        raise CorruptObject(f"section at {position} with {length} bytes lies outside of the tail")
    section = data[position - begin : position - begin + length]
    if crc32c(section) != crc:
        raise CorruptObject(f"crc of the section at {position} differs")
    return section


def _pack(layout: struct.Struct, entries: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join(layout.pack(*entry) for entry in entries)


def _unpack(layout: struct.Struct, make: Callable[[Iterable[Any]], Entry], data: bytes) -> tuple[Entry, ...]:
    return tuple(map(make, layout.iter_unpack(data)))
