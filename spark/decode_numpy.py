"""Records to Arrow columns, vectorised: what a record holds is found for all records of some batches at once.

Only the way from record to record is walked one by one, for each length says where the next one begins. Fields are
then read with numpy, a varint of all records at a time, and keys and values are copied by Arrow: the edges of all keys
and values are the offsets of one binary array over the batches, of which every other element is one of ours.

This is the reference: `decode_native` does the same in compiled code where it was built (`make native`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from appliance.records.errors import CorruptBatch

Array = np.ndarray[Any, Any]

NO_APPEND_TIME = -(1 << 63)
HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

_PADDING = bytes(16)
"""Behind the last record, so that reading a varint of ten bytes never leaves the array."""
_LENGTH_MAX = 1 << 40
"""A varint above this is no length; adding it to a position could overflow."""


class Piece(NamedTuple):
    """The records of one batch, unpacked."""

    body: bytes | memoryview
    records: int
    base_offset: int
    base_timestamp: int
    append_time: int
    """In the place of the records' own timestamps, or `NO_APPEND_TIME`."""


def read_columns(pieces: Sequence[Piece], names: Collection[str]) -> dict[str, pa.Array]:
    """The columns `names` out of key, value, offset, timestamp and headers of all records of `pieces`.

    Raises:
        CorruptBatch: bytes do not hold the records that their header promises.
    """
    data = b"".join([*(piece.body for piece in pieces), _PADDING])
    try:
        return _Records(data, pieces).columns(names)
    except (IndexError, OverflowError):
        raise _corrupt(pieces, "records are cut off") from None


def _corrupt(pieces: Sequence[Piece], what: str) -> CorruptBatch:
    return CorruptBatch(f"batches at offsets {pieces[0].base_offset} to {pieces[-1].base_offset}: {what}")


class _Records:
    """Where the fields of all records are."""

    def __init__(self, data: bytes, pieces: Sequence[Piece]) -> None:
        self._data = data
        self._bytes: Array = np.frombuffer(data, np.uint8)
        self._pieces = pieces
        edges = np.array(_record_edges(data, pieces), np.int64)
        self._ends: Array = edges[1:]
        length, at = self._varints(edges[:-1])
        self._check((length >= 0) & (at + length == self._ends), "a record's length is wrong")
        self._timestamp_deltas, at = self._varints(at + 1)  # behind the attributes
        self._offset_deltas, at = self._varints(at)
        self._keys = self._field(at)
        self._values = self._field(self._keys[2])

    def columns(self, names: Collection[str]) -> dict[str, pa.Array]:
        """Raises: CorruptBatch."""
        headers_at = self._values[2]
        header_counts, header_ends = self._varints(headers_at)
        self._check(header_counts >= 0, "a count of headers is wrong")
        self._check((header_counts > 0) | (header_ends == self._ends), "a record's length is wrong")
        counts = np.array([piece.records for piece in self._pieces])
        found: dict[str, pa.Array] = {}
        if "key" in names:
            found["key"] = self._binary(self._keys)
        if "value" in names:
            found["value"] = self._binary(self._values)
        if "offset" in names:
            base = np.array([piece.base_offset for piece in self._pieces], np.int64)
            found["offset"] = pa.array(np.repeat(base, counts) + self._offset_deltas)
        if "timestamp" in names:
            found["timestamp"] = self._timestamps(counts)
        if "headers" in names:
            found["headers"] = self._headers(header_counts, header_ends)
        return found

    def _check(self, holds: Array, what: str) -> None:
        if not holds.all():
            raise _corrupt(self._pieces, what)

    def _varints(self, at: Array) -> tuple[Array, Array]:
        """The zigzag varints at these positions, and where they end."""
        first = self._bytes[at]
        value = first.astype(np.uint64)
        behind = at + 1
        longer = np.flatnonzero(first > 0x7F)
        if longer.size:
            value &= np.uint64(0x7F)
            shift = 7
            while longer.size:
                if shift > 63:
                    raise _corrupt(self._pieces, "a varint has more than ten bytes")
                byte = self._bytes[behind[longer]]
                value[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
                behind[longer] += 1
                longer = longer[byte > 0x7F]
                shift += 7
        sign = -(value & np.uint64(1)).view(np.int64)
        return (value >> np.uint64(1)).view(np.int64) ^ sign, behind

    def _field(self, at: Array) -> tuple[Array, Array, Array]:
        """The keys or values whose lengths are at these positions: whether null, where they begin and end."""
        length, begin = self._varints(at)
        self._check((length < _LENGTH_MAX) & (begin + length <= self._ends), "a field is longer than its record")
        is_null = length < 0
        return is_null, begin, begin + np.maximum(length, 0)

    def _binary(self, field: tuple[Array, Array, Array]) -> pa.Array:
        is_null, begin, end = field
        count = len(begin)
        if not count:
            return pa.array([], pa.binary())
        edges = np.empty(2 * count, np.int32)
        edges[0::2], edges[1::2] = begin, end
        # Elements 0, 2, 4, … are the fields, those between them are what lies between the fields.
        buffers = [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        with_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        wanted = pa.array(np.arange(0, 2 * count, 2), mask=is_null if is_null.any() else None)
        return with_gaps.take(wanted)

    def _timestamps(self, counts: Array) -> pa.Array:
        base = np.array([piece.base_timestamp for piece in self._pieces], np.int64)
        milliseconds = np.repeat(base, counts) + self._timestamp_deltas
        if any(piece.append_time != NO_APPEND_TIME for piece in self._pieces):
            append = np.repeat(np.array([piece.append_time for piece in self._pieces], np.int64), counts)
            milliseconds = np.where(append == NO_APPEND_TIME, milliseconds, append)
        return pa.array(milliseconds * 1000).view(TIMESTAMP_TYPE)

    def _headers(self, counts: Array, at: Array) -> pa.Array:
        """Lists of headers, null where there are none: the first headers of all records, then the second ones, …"""
        records: list[Array] = []
        keys: list[tuple[Array, Array, Array]] = []
        values: list[tuple[Array, Array, Array]] = []
        all_ends, left, number = self._ends, np.flatnonzero(counts), 0
        self._check(counts <= self._ends - at, "more headers than bytes")
        at = at[left]
        try:
            while left.size:
                self._ends = all_ends[left]
                keys.append(self._field(at))
                self._check(~keys[-1][0], "a header key is null")
                values.append(self._field(keys[-1][2]))
                records.append(left)
                number += 1
                more = counts[left] > number
                self._check(more | (values[-1][2] == self._ends), "a record's length is wrong")
                at, left = values[-1][2][more], left[more]
        finally:
            self._ends = all_ends
        lists = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=lists[1:])
        if not records:
            return pa.nulls(len(counts), pa.list_(HEADER_TYPE))
        order = np.argsort(np.concatenate(records), kind="stable")
        key = self._binary(_in_order(keys, order))
        value = self._binary(_in_order(values, order))
        try:
            key = key.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise _corrupt(self._pieces, f"a header key is not UTF-8: {error}") from None
        structs = pa.StructArray.from_arrays([key, value], fields=list(HEADER_TYPE))
        return pa.ListArray.from_arrays(pa.array(lists), structs, mask=pa.array(counts == 0))


def _in_order(parts: list[tuple[Array, Array, Array]], order: Array) -> tuple[Array, Array, Array]:
    is_null, begin, end = (np.concatenate([part[number] for part in parts])[order] for number in range(3))
    return is_null, begin, end


def _record_edges(data: bytes, pieces: Sequence[Piece]) -> list[int]:
    """Where each record begins (with its length), and the end of the last one; bodies adjoin.

    Raises:
        CorruptBatch, IndexError: lengths do not lead to the end of the body.
    """
    edges = [0] * (sum(max(0, piece.records) for piece in pieces if piece.records <= len(piece.body)) + 1)
    number = position = piece_end = 0
    for piece in pieces:
        piece_end += len(piece.body)
        if not 0 <= piece.records <= len(piece.body):
            raise _corrupt([piece], f"{piece.records} records in {len(piece.body)} bytes")
        for _ in range(piece.records):
            edges[number] = position
            number += 1
            # This is half of the time of all: lengths of one and two bytes are read in place, calls would double it.
            low = data[position]
            if low < 0x80:
                position += (low >> 1) + 1
                continue
            high = data[position + 1]
            if high < 0x80:
                position += (low >> 1) + (high << 6) - 62
            else:
                position = _behind_long_record(data, position)
        if position != piece_end:
            raise _corrupt([piece], "records do not fill their batch")
    edges[number] = position
    return edges


def _behind_long_record(data: bytes, position: int) -> int:
    """Where a record ends whose length has three bytes or more."""
    length = shift = 0
    while (byte := data[position]) > 0x7F:
        length |= (byte & 0x7F) << shift
        shift += 7
        position += 1
    return position + 1 + ((length | byte << shift) >> 1)
