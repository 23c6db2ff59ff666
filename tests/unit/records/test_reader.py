"""Records in and out of batches."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from appliance.records.batch import CRC_START, HEADER_BYTES
from appliance.records.builder import build_batch, encode_record, encode_varint
from appliance.records.compression import Codec
from appliance.records.control import ABORT, COMMIT, build_marker, read_marker
from appliance.records.errors import CorruptBatch
from appliance.records.reader import Record, read_records

RECORDS = [
    (1_700_000_000_000, b"key", b"value", ()),
    (1_700_000_000_005, None, b"", (("h", b"1"), ("h", None), ("Ω", b""))),
    (1_699_999_999_000, b"", None, ()),
    (1_700_000_100_000, b"k" * 300, b"v" * 70_000, (("long", b"x" * 200),)),
]


@pytest.mark.parametrize("codec", Codec)
def test_records_come_back_as_they_went_in(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=40)
    expected = [Record(40 + n, *fields[:3], tuple(fields[3])) for n, fields in enumerate(RECORDS)]
    assert list(read_records(batch)) == expected


def test_records_may_be_older_than_the_first() -> None:
    batch = build_batch([(10, None, b"a", ()), (3, None, b"b", ())])
    assert [record.timestamp for record in read_records(batch)] == [10, 3]


def test_a_batch_without_records_is_refused_when_built() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_batch([])


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    batch = bytearray(build_batch([(1, None, b"x", ())])[:HEADER_BYTES])
    struct.pack_into(">i", batch, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", batch, 57, 0)
    assert list(read_records(batch)) == []


def test_the_count_must_fit_the_bytes() -> None:
    batch = bytearray(build_batch(RECORDS[:2]))
    struct.pack_into(">i", batch, 57, 1)
    with pytest.raises(CorruptBatch, match="behind the last record"):
        list(read_records(batch))
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(CorruptBatch, match=r"cut off|cannot be"):
        list(read_records(batch))


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_a_count_that_lies_costs_nothing(count: int) -> None:
    batch = bytearray(build_batch(RECORDS[:2]))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(CorruptBatch):
        list(read_records(batch))


def test_a_record_must_end_where_its_length_says() -> None:
    record = encode_record(0, 0, None, b"v")
    with pytest.raises(CorruptBatch):
        list(read_records(_batch_around(encode_varint(len(record) + 1) + record + b"\0")))


def test_a_header_key_must_be_utf_8() -> None:
    record = encode_record(0, 0, None, b"v", (("ab", b""),)).replace(b"ab", b"\xff\xfe")
    with pytest.raises(CorruptBatch, match="UTF-8"):
        list(read_records(_batch_around(encode_varint(len(record)) + record)))


def test_a_batch_that_unpacks_to_too_much_is_refused() -> None:
    batch = build_batch([(1, None, bytes(100_000), ())], codec=Codec.ZSTD)
    assert len(list(read_records(batch, max_bytes=200_000))) == 1
    with pytest.raises(CorruptBatch, match="more than"):
        list(read_records(batch, max_bytes=50_000))


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 8191, 8192, 2**31 - 1, 2**62, 2**63 - 1])
def test_a_timestamp_delta_may_have_any_size(value: int) -> None:
    for timestamp in (value, -value):
        record = encode_record(timestamp, 0, None, None)
        batch = _batch_around(encode_varint(len(record)) + record)
        assert next(read_records(batch)).timestamp == timestamp


def test_a_varint_of_more_than_ten_bytes_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        list(read_records(_batch_around(b"\xff" * 12)))


@pytest.mark.parametrize("control_type", [ABORT, COMMIT])
def test_a_marker_says_how_the_transaction_ended(control_type: int) -> None:
    marker = read_marker(build_marker(control_type, 12, producer_id=1, producer_epoch=3, now_ms=9))
    assert marker is not None
    assert (marker.is_commit, marker.coordinator_epoch) == (control_type == COMMIT, 12)


def test_control_records_of_other_types_are_no_markers() -> None:
    batch = build_batch([(1, struct.pack(">hh", 0, 2), b"leader change", ())], control=True)
    assert read_marker(batch) is None


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"\0\0", b""), (b"\0\0\0\1", None), (b"\0\0\0\1", b"\0\0")])
def test_a_marker_with_pieces_missing_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(build_batch([(1, key, value, ())], control=True))


def _batch_around(body: bytes) -> bytes:
    """A batch of one record whose bytes are given, with base timestamp 0."""
    batch = bytearray(build_batch([(0, None, None, ())])[:HEADER_BYTES] + body)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)
