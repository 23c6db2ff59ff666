from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.tiering.layout import (
    TRAILER_BYTES,
    AbortedTransaction,
    CorruptObject,
    DecidedTransaction,
    EpochEntry,
    SegmentTail,
    encode_tail,
    parse_tail,
)
from appliance.tiering.names import ObjectName
from tests.support.tier_objects import data_batch, scan_bytes, tail_of

GOLDEN = Path(__file__).parents[2] / "golden" / "tiering"


def sample() -> tuple[bytes, SegmentTail]:
    batches = [data_batch(100 + 2 * n, [b"value", b"other"], timestamp=9_000 + 10 * n) for n in range(5)]
    data = b"".join(batches)
    tail = tail_of(
        scan_bytes(data, 100),
        data,
        ObjectName("seg", 100, 110, 3, 7),
        decided=(DecidedTransaction(2, 0, 4, 104, 111, 1),),
        producers=b"a snapshot",
        epochs=(EpochEntry(1, 0), EpochEntry(3, 106)),
    )
    tail = SegmentTail(
        tail.footer,
        tail.offset_index,
        tail.time_index,
        (AbortedTransaction(1, 90, 103), AbortedTransaction(2, 104, 108)),
        tail.decided,
        tail.producers,
        tail.epochs,
    )
    return data, tail


def test_a_tail_reads_back_as_it_was() -> None:
    data, tail = sample()
    encoded = encode_tail(tail)
    assert parse_tail(encoded, len(data) + len(encoded)) == tail


def test_more_than_the_tail_can_be_given() -> None:
    data, tail = sample()
    whole = data + encode_tail(tail)
    assert parse_tail(whole, len(whole)) == tail


def test_the_object_begins_with_the_segment_and_ends_with_the_magic() -> None:
    data, tail = sample()
    whole = data + encode_tail(tail)
    assert whole[: tail.footer.data_length] == data
    assert whole[-8:] == b"APPLSEG1" and TRAILER_BYTES == 40
    footer_position, footer_length = int.from_bytes(whole[-32:-24], "big"), int.from_bytes(whole[-24:-20], "big")
    assert json.loads(whole[footer_position : footer_position + footer_length])["topic"] == "flights"


def test_the_golden_object_of_version_1_stays_readable_and_is_what_we_write() -> None:
    data, tail = sample()
    golden = (GOLDEN / "segment-1").read_bytes()
    assert parse_tail(golden[len(data) :], len(golden)) == tail
    assert golden == data + encode_tail(tail)


@given(st.data())
def test_one_flipped_byte_anywhere_in_the_tail_is_found(choice: st.DataObject) -> None:
    data, tail = sample()
    encoded = bytearray(encode_tail(tail))
    position = choice.draw(st.integers(0, len(encoded) - 1))
    # The reserved word is the one place that nothing covers.
    if len(encoded) - 12 <= position < len(encoded) - 8:
        return
    encoded[position] ^= choice.draw(st.integers(1, 255))
    with pytest.raises(CorruptObject):
        parse_tail(bytes(encoded), len(data) + len(encoded))


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptObject):
        parse_tail(data, len(data))


def test_a_tail_that_is_cut_off_or_of_another_size_is_refused() -> None:
    data, tail = sample()
    encoded = encode_tail(tail)
    for wrong in (encoded[1:], encoded[-50:]):
        with pytest.raises(CorruptObject):
            parse_tail(wrong, len(data) + len(encoded))
    with pytest.raises(CorruptObject):
        parse_tail(encoded, len(data) + len(encoded) + 1)


def test_reading_for_any_offset_begins_at_or_before_its_batch() -> None:
    _, tail = sample()
    size = tail.footer.data_length // 5
    for offset in range(100, 110):
        position = tail.position_of(offset)
        assert position % size == 0
        assert position <= (offset - 100) // 2 * size


def test_everything_before_the_offset_found_for_a_time_is_older() -> None:
    _, tail = sample()
    stamps = {100 + 2 * n + k: 9_000 + 10 * n + k for n in range(5) for k in range(2)}
    for timestamp in range(8_990, 9_060):
        found = tail.offset_before(timestamp)
        assert all(stamp < timestamp for offset, stamp in stamps.items() if offset < found)


def test_aborted_transactions_are_found_by_overlap() -> None:
    _, tail = sample()
    assert [t.producer_id for t in tail.aborted_between(100, 104)] == [1]
    assert [t.producer_id for t in tail.aborted_between(103, 105)] == [1, 2]
    assert tail.aborted_between(109, 110) == []


def test_the_lineage_tells_the_epoch_of_a_record() -> None:
    _, tail = sample()
    assert [tail.epoch_of(offset) for offset in (0, 105, 106, 109)] == [1, 1, 3, 3]
    assert SegmentTail(tail.footer).epoch_of(100) == -1
