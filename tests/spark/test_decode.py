"""Batches to Arrow: the columns of Spark's Kafka source, exactly the offsets that were asked for."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from appliance.base.ids import TopicPartition
from appliance.records.builder import build_batch
from appliance.records.errors import CorruptBatch
from spark.decode import DEFAULT_COLUMNS, FIELDS, ROWS_PER_ARROW_BATCH, Decoder

TP = TopicPartition("t", 3)


def batch(
    base: int, count: int, codec: int = 0, headers: list[tuple[str, bytes | None]] | None = None, **more: bool
) -> bytes:
    records = [(1_357_034_400_000 + i, b"k%d" % (base + i), b"v%d" % (base + i), headers or []) for i in range(count)]
    return build_batch(records, codec=codec, base_offset=base, **more)


def table(chunks: list[bytes], start: int, end: int, columns: tuple[str, ...] = DEFAULT_COLUMNS) -> pa.Table:
    decoder = Decoder(columns, TP, "hot", True)
    return pa.Table.from_batches(decoder.decode(chunks, start, end), decoder.schema)


def test_rows_have_the_columns_of_sparks_kafka_source() -> None:
    row = table([batch(10, 1)], 0, 100).to_pylist()[0]
    assert row == {
        "key": b"k10",
        "value": b"v10",
        "topic": "t",
        "partition": 3,
        "offset": 10,
        "timestamp": datetime.datetime(2013, 1, 1, 10, tzinfo=datetime.UTC),
        "timestampType": 0,
    }


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_across_an_edge_gives_each_side_its_own_records(codec: int) -> None:
    chunks = [batch(0, 10, codec) + batch(10, 10, codec), batch(20, 10, codec)]
    left = table(chunks, 0, 15)["offset"].to_pylist()
    right = table(chunks, 15, 25)["offset"].to_pylist()
    assert (left, right) == (list(range(15)), list(range(15, 25)))


def test_a_batch_that_is_cut_off_is_left_to_the_next_fetch() -> None:
    whole, cut = batch(0, 5), batch(5, 5)[:-3]
    decoder = Decoder(("offset",), TP, "hot", True)
    rows = [row for rows in decoder.decode([whole + cut], 0, 100) for row in rows["offset"].to_pylist()]
    assert (rows, decoder.next_offset) == ([0, 1, 2, 3, 4], 5)


def test_control_batches_count_as_offsets_and_are_no_rows() -> None:
    decoder = Decoder(("offset",), TP, "hot", True)
    assert list(decoder.decode([batch(0, 1, control=True, transactional=True)], 0, 100)) == []
    assert decoder.next_offset == 1


def test_only_the_wanted_columns_are_made() -> None:
    got = table([batch(0, 3)], 0, 100, ("offset", "tier"))
    assert got.schema == pa.schema([FIELDS["offset"], FIELDS["tier"]])
    assert got["tier"].to_pylist() == ["hot"] * 3


def test_headers_are_an_array_and_null_where_there_are_none() -> None:
    got = table([batch(0, 1, headers=[("a", b"x"), ("a", None)]), batch(1, 1)], 0, 100, ("headers",))
    assert got["headers"].to_pylist() == [[{"key": "a", "value": b"x"}, {"key": "a", "value": None}], None]


def test_null_keys_and_values_stay_null() -> None:
    got = table([build_batch([(5, None, None, [])])], 0, 100, ("key", "value"))
    assert got.to_pylist() == [{"key": None, "value": None}]


def test_a_flipped_bit_is_an_error() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        table([bytes(damaged)], 0, 100)


def test_arrow_batches_are_bounded_and_alike() -> None:
    chunks = [batch(base, 1000) for base in range(0, 80_000, 1000)]
    decoder = Decoder(DEFAULT_COLUMNS, TP, "hot", True)
    got = list(decoder.decode(chunks, 0, 80_000))
    assert len(got) > 1
    assert all(rows.schema == decoder.schema and rows.num_rows <= ROWS_PER_ARROW_BATCH + 1000 for rows in got)
    assert sum(rows.num_rows for rows in got) == 80_000
