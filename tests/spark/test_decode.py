"""Batches to Arrow: the columns of Spark's Kafka source, exactly the offsets that were asked for."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from appliance.base.ids import TopicPartition
from appliance.records.batch import set_log_append_time
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT
from appliance.records.errors import CorruptBatch
from spark import decode
from spark.aborted import AbortedRange
from spark.decode import DEFAULT_COLUMNS, FIELDS, ROWS_PER_ARROW_BATCH, Chunk, Decoder
from tests.support.tier_objects import data_batch, marker_batch

TP = TopicPartition("t", 3)


def batch(
    base: int, count: int, codec: int = 0, headers: list[tuple[str, bytes | None]] | None = None, **more: bool
) -> bytes:
    records = [(1_357_034_400_000 + i, b"k%d" % (base + i), b"v%d" % (base + i), headers or []) for i in range(count)]
    return build_batch(records, codec=codec, base_offset=base, **more)


def table(
    chunks: Sequence[bytes | Chunk], start: int, end: int, columns: tuple[str, ...] = DEFAULT_COLUMNS
) -> pa.Table:
    decoder = Decoder(columns, TP, "hot", True)
    return pa.Table.from_batches(decoder.decode(as_chunks(chunks), start, end), decoder.schema)


def as_chunks(chunks: Sequence[bytes | Chunk]) -> Iterator[Chunk]:
    return (chunk if isinstance(chunk, Chunk) else Chunk(chunk) for chunk in chunks)


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


@pytest.mark.parametrize("columns", [("offset",), ("value", "offset")])
@pytest.mark.parametrize("codec", range(5))
def test_a_batch_across_an_edge_gives_each_side_its_own_records(codec: int, columns: tuple[str, ...]) -> None:
    chunks = [batch(0, 10, codec) + batch(10, 10, codec), batch(20, 10, codec)]
    left, right = table(chunks, 0, 15, columns), table(chunks, 15, 25, columns)
    assert (left["offset"].to_pylist(), right["offset"].to_pylist()) == (list(range(15)), list(range(15, 25)))
    if "value" in columns:
        assert right["value"].to_pylist() == [b"v%d" % offset for offset in range(15, 25)]


def test_rows_are_counted_right_when_no_column_of_theirs_is_wanted() -> None:
    assert table([batch(0, 10), batch(10, 10)], 5, 12, ("partition",))["partition"].to_pylist() == [3] * 7


def test_a_batch_that_is_cut_off_is_left_to_the_next_fetch() -> None:
    whole, cut = batch(0, 5), batch(5, 5)[:-3]
    decoder = Decoder(("offset",), TP, "hot", True)
    rows = [row for rows in decoder.decode([Chunk(whole + cut)], 0, 100) for row in rows["offset"].to_pylist()]
    assert (rows, decoder.next_offset) == ([0, 1, 2, 3, 4], 5)


def test_control_batches_count_as_offsets_and_are_no_rows() -> None:
    decoder = Decoder(("offset",), TP, "hot", True)
    assert list(decoder.decode([Chunk(batch(0, 1, control=True, transactional=True))], 0, 100)) == []
    assert decoder.next_offset == 1


def test_batches_without_records_are_passed_over() -> None:
    empty = bytearray(batch(0, 1))
    empty[57:61] = bytes(4)
    decoder = Decoder(DEFAULT_COLUMNS, TP, "hot", False)
    assert list(decoder.decode([Chunk(bytes(empty))], 0, 100)) == []
    assert decoder.next_offset == 1


def test_only_the_wanted_columns_are_made() -> None:
    got = table([batch(0, 3)], 0, 100, ("offset", "tier"))
    assert got.schema == pa.schema([FIELDS["offset"], FIELDS["tier"]])
    assert got["tier"].to_pylist() == ["hot"] * 3


def test_offsets_alone_are_read_from_headers_without_opening_a_body() -> None:
    packed = bytearray(batch(0, 3, codec=4))
    packed[70] ^= 0xFF
    decoder = Decoder(("offset",), TP, "hot", False)
    assert [rows["offset"].to_pylist() for rows in decoder.decode([Chunk(bytes(packed))], 0, 9)] == [[0, 1, 2]]


def test_headers_are_an_array_and_null_where_there_are_none() -> None:
    got = table([batch(0, 1, headers=[("a", b"x"), ("a", None)]), batch(1, 1)], 0, 100, ("headers",))
    assert got["headers"].to_pylist() == [[{"key": "a", "value": b"x"}, {"key": "a", "value": None}], None]


def test_null_keys_and_values_stay_null() -> None:
    got = table([build_batch([(5, None, None, [])])], 0, 100, ("key", "value"))
    assert got.to_pylist() == [{"key": None, "value": None}]


def test_a_log_append_time_stands_in_the_place_of_the_records_own() -> None:
    stamped = bytearray(batch(0, 2))
    set_log_append_time(stamped, 1_000)
    got = table([bytes(stamped), batch(2, 1)], 0, 100, ("timestamp", "timestampType"))
    second = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert got["timestamp"].to_pylist()[:2] == [second, second]
    assert got["timestampType"].to_pylist() == [1, 1, 0]


@pytest.mark.parametrize("columns", [("offset",), ("value",)])
def test_a_flipped_bit_is_an_error(columns: tuple[str, ...]) -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        table([bytes(damaged)], 0, 100, columns)


def test_arrow_batches_are_bounded_and_alike() -> None:
    chunks = [batch(base, 1000) for base in range(0, 80_000, 1000)]
    decoder = Decoder(DEFAULT_COLUMNS, TP, "hot", True)
    got = list(decoder.decode(as_chunks(chunks), 0, 80_000))
    assert len(got) > 1
    assert all(rows.schema == decoder.schema and rows.num_rows <= ROWS_PER_ARROW_BATCH + 1000 for rows in got)
    assert sum(rows.num_rows for rows in got) == 80_000


def test_columns_of_one_cell_are_right_in_arrow_batches_of_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "ROWS_PER_ARROW_BATCH", 1)
    stamped = bytearray(batch(12, 8))
    set_log_append_time(stamped, 1_000)
    sizes = [(0, 3), (3, 1), (4, 8), (20, 2), (22, 30)]
    chunks = [b"".join([*(batch(*size) for size in sizes[:3]), bytes(stamped), *(batch(*size) for size in sizes[3:])])]
    decoder = Decoder(("timestampType", "topic", "partition", "tier"), TP, "hot", True)
    got = list(decoder.decode(as_chunks(chunks), 0, 52))
    assert [rows.num_rows for rows in got] == [3, 1, 8, 8, 2, 30]
    for rows in got:
        rows.validate(full=True)
    cells = [cell for rows in got for cell in rows.to_pylist()]
    kinds = [0] * 12 + [1] * 8 + [0] * 32
    assert cells == [{"timestampType": kind, "topic": "t", "partition": 3, "tier": "hot"} for kind in kinds]


def transactional(base: int, producer_id: int) -> bytes:
    return data_batch(base, [b"x", b"y"], producer_id=producer_id, transactional=True)


LOG = b"".join(
    [
        transactional(0, 7),
        transactional(2, 8),
        data_batch(4, [b"plain"]),
        transactional(5, 7),
        marker_batch(7, ABORT, 7),
        marker_batch(8, COMMIT, 8),
        transactional(9, 7),
        marker_batch(11, COMMIT, 7),
        transactional(12, 7),
        marker_batch(14, ABORT, 7),
    ]
)
COMMITTED = [2, 3, 4, 9, 10]


@pytest.mark.parametrize(
    "aborted",
    [
        (AbortedRange(7, 0), AbortedRange(7, 12)),
        (AbortedRange(7, 0, 7), AbortedRange(7, 12, 14)),
        (AbortedRange(7, 12, 14), AbortedRange(7, 0, 7)),
    ],
    ids=["as brokers say it", "as objects say it", "in any order"],
)
def test_aborted_transactions_are_left_out_wherever_a_read_begins(aborted: tuple[AbortedRange, ...]) -> None:
    for start in range(15):
        overlapping = [entry for entry in aborted if (7 if entry.first_offset == 0 else 14) >= start]
        got = table([Chunk(LOG, overlapping)], start, 15, ("offset",))
        assert got["offset"].to_pylist() == [offset for offset in COMMITTED if offset >= start]


def test_a_transaction_that_is_aborted_in_a_later_chunk_is_known_from_the_first_on() -> None:
    halves = [Chunk(LOG[: len(transactional(0, 7))], [AbortedRange(7, 0)]), Chunk(LOG, [AbortedRange(7, 12)])]
    assert table(halves, 0, 15, ("offset",))["offset"].to_pylist() == COMMITTED


def test_a_read_uncommitted_reader_gets_all_data_but_no_marker() -> None:
    assert table([LOG], 0, 15, ("offset",))["offset"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 9, 10, 12, 13]


def test_a_batch_behind_the_end_says_that_what_lies_before_it_is_a_hole() -> None:
    decoder = Decoder(("offset",), TP, "hot", True)
    assert list(decoder.decode([Chunk(batch(30, 5))], 12, 20)) == []
    assert (decoder.next_offset, decoder.last_epoch) == (20, -1)
    rows = list(decoder.decode([Chunk(batch(20, 2) + batch(40, 2))], 20, 40))
    assert [row.num_rows for row in rows] == [2] and decoder.next_offset == 40
