"""The numpy decoder, the compiled one (where it was built) and the record reader find the same records."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.records.batch import HEADER_BYTES, parse_header
from appliance.records.builder import build_batch, encode_record, encode_varint
from appliance.records.compression import decompress
from appliance.records.errors import CorruptBatch
from appliance.records.reader import Record, read_records
from spark import decode_numpy
from spark.decode_native import read_columns_native
from spark.decode_numpy import NO_APPEND_TIME, Piece

NAMES = ("key", "value", "offset", "timestamp", "headers")
Decode = Callable[[Sequence[Piece], Collection[str]], dict[str, pa.Array]]


def native() -> Any:
    try:
        return importlib.import_module("spark._native")
    except ImportError:
        return None


def compiled(pieces: Sequence[Piece], names: Collection[str]) -> dict[str, pa.Array]:
    return read_columns_native(native(), pieces, names)


TWINS: dict[str, Decode] = {"numpy": decode_numpy.read_columns}
if native() is not None:
    TWINS["compiled"] = compiled

cells = st.none() | st.binary(max_size=300) | st.integers(0, 70_000).map(lambda size: b"x" * size)
names_of_headers = st.text(max_size=12)
headers = st.lists(st.tuples(names_of_headers, st.none() | st.binary(max_size=40)), max_size=4)
times = st.integers(-1, 1 << 44)
batches = st.lists(
    st.tuples(st.lists(st.tuples(times, cells, cells, headers), min_size=1, max_size=60), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


def piece_of(batch: bytes) -> Piece:
    header = parse_header(batch)
    body = decompress(header.codec, memoryview(batch)[HEADER_BYTES:])
    append_time = header.max_timestamp if header.timestamp_type else NO_APPEND_TIME
    return Piece(body, header.record_count, header.base_offset, header.base_timestamp, append_time)


def columns_of(records: Sequence[Record]) -> dict[str, list[Any]]:
    """What the record reader says."""
    return {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp for record in records],
        "headers": [[{"key": name, "value": value} for name, value in record.headers] or None for record in records],
    }


def plain(found: dict[str, pa.Array]) -> dict[str, list[Any]]:
    for array in found.values():
        array.validate(full=True)
    in_ms = found["timestamp"].cast(pa.int64()).to_pylist()
    return {name: array.to_pylist() for name, array in found.items()} | {"timestamp": [us // 1000 for us in in_ms]}


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=120, deadline=None)
@given(batches, st.integers(0, 1 << 40))
def test_all_columns_are_what_the_record_reader_says(twin: str, given: list[Any], base: int) -> None:
    built = []
    for records, codec in given:
        built.append(build_batch(records, codec=codec, base_offset=base))
        base += len(records) + 3
    found = TWINS[twin]([piece_of(batch) for batch in built], NAMES)
    assert plain(found) == columns_of([record for batch in built for record in read_records(batch)])


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1 << 30), cells), min_size=1, max_size=80))
def test_offsets_with_holes_from_compaction_stay_as_they_are(twin: str, steps: list[tuple[int, bytes | None]]) -> None:
    body, offset, offsets = b"", -1, []
    for step, value in steps:
        offset += step
        record = encode_record(step, offset & 0x7FFFFFFF, b"k", value)
        offsets.append(1_000 + (offset & 0x7FFFFFFF))
        body += encode_varint(len(record)) + record
    found = TWINS[twin]([Piece(body, len(steps), 1_000, 5, 77)], ("value", "offset", "timestamp"))
    assert found["offset"].to_pylist() == offsets
    assert found["value"].to_pylist() == [value for _, value in steps]
    assert set(found["timestamp"].cast(pa.int64()).to_pylist()) == {77_000}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("names", [(), ("value",), NAMES])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_bodies_are_an_error_or_rows_but_never_a_fault(
    twin: str, names: tuple[str, ...], data: st.DataObject
) -> None:
    records = [(n, b"key", b"v" * n, [("h", b"x")] if n % 3 == 0 else []) for n in range(20)]
    whole = piece_of(build_batch(records))
    body = bytearray(whole.body)
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    count = data.draw(st.sampled_from([20, 19, 21, -1, 1 << 30]))
    outcomes = []
    for twin_body in (bytes(body), bytes(body[:cut])):
        try:
            found = TWINS[twin]([whole._replace(body=twin_body, records=count)], names)
            outcomes.append({name: array.to_pylist() for name, array in found.items() if name != "timestamp"})
        except CorruptBatch:
            outcomes.append({})
    if native() is not None and twin == "compiled":
        for twin_body, outcome in zip((bytes(body), bytes(body[:cut])), outcomes, strict=True):
            try:
                found = decode_numpy.read_columns([whole._replace(body=twin_body, records=count)], names)
                assert outcome == {n: array.to_pylist() for n, array in found.items() if n != "timestamp"}
            except CorruptBatch:
                assert outcome == {}
