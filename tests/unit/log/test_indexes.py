"""Index files, byte for byte as Kafka has them, and what is done with damaged ones."""

from __future__ import annotations

import struct

import pytest

from appliance.log.indexes import (
    AbortedTransaction,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
    aborted_from_bytes,
    aborted_to_bytes,
)


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.append(offset, position)
    return index


def time_index(*entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex()
    for timestamp, offset in entries:
        index.append_if_later(timestamp, offset)
    return index


def test_an_offset_entry_is_two_big_endian_words() -> None:
    assert offset_index((5, 4100), (9, 8200)).unstored() == struct.pack(">IIII", 5, 4100, 9, 8200)


def test_only_new_entries_are_appended_to_the_file() -> None:
    index = offset_index((5, 4100), (9, 8200))
    index.stored_entries = 1
    assert index.unstored() == struct.pack(">II", 9, 8200)


def test_the_batch_before_an_offset_is_found() -> None:
    index = offset_index((5, 100), (9, 200), (20, 300))
    assert [index.position_before(offset) for offset in (0, 4, 5, 8, 9, 19, 20, 1000)] == [
        0,
        0,
        100,
        100,
        200,
        200,
        300,
        300,
    ]
    assert [index.position_at_most(position) for position in (0, 99, 100, 250, 300, 9999)] == [0, 0, 100, 200, 300, 300]


def test_an_index_is_cut_by_position() -> None:
    index = offset_index((5, 100), (9, 200), (20, 300))
    index.stored_entries = 3
    index.truncate(300)
    assert list(index.positions) == [100, 200] and index.stored_entries == 2
    index.truncate(0)
    assert len(index) == 0


def test_an_offset_index_is_read_back() -> None:
    index = OffsetIndex.from_bytes(offset_index((5, 100), (9, 200)).unstored(), log_size_bytes=201)
    assert (list(index.offsets), list(index.positions), index.stored_entries) == ([5, 9], [100, 200], 2)


@pytest.mark.parametrize("position", [0x100, 0x10000, 0x1000000])
def test_zeros_that_kafka_allocated_in_advance_are_dropped_and_zeros_of_the_last_entry_are_kept(position: int) -> None:
    content = offset_index((5, 100), (256, position)).unstored() + bytes(10_000 * 8)
    assert list(OffsetIndex.from_bytes(content, 1 << 30).positions) == [100, position]


def test_an_empty_or_all_zero_index_has_no_entries() -> None:
    assert len(OffsetIndex.from_bytes(b"", 0)) == len(OffsetIndex.from_bytes(bytes(80), 0)) == 0
    assert len(TimeIndex.from_bytes(b"")) == len(TimeIndex.from_bytes(bytes(120))) == 0


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">IIII", 9, 200, 5, 300),
        struct.pack(">IIII", 5, 200, 9, 100),
        struct.pack(">IIII", 5, 100, 9, 5000),
        struct.pack(">IIIB", 5, 100, 9, 1),
    ],
    ids=["offsets fall", "positions fall", "beyond the log", "half an entry"],
)
def test_a_damaged_offset_index_is_not_believed(content: bytes) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.from_bytes(content, log_size_bytes=1000)


def test_a_time_entry_is_a_timestamp_and_an_offset() -> None:
    assert time_index((1_700_000_000_000, 7)).unstored() == struct.pack(">qI", 1_700_000_000_000, 7)


def test_timestamps_only_rise() -> None:
    index = time_index((10, 1), (10, 2), (9, 3), (11, 4), (-1, 5))
    assert (list(index.timestamps), list(index.offsets)) == ([10, 11], [1, 4])


def test_timestamps_of_the_year_zero_and_far_away_are_kept() -> None:
    index = time_index((0, 1), (2**33, 2), (2**62 + 5, 3))
    back = TimeIndex.from_bytes(index.unstored())
    assert list(back.timestamps) == [0, 2**33, 2**62 + 5]


def test_the_offset_before_a_time_is_found() -> None:
    index = time_index((100, 3), (200, 8))
    assert [index.offset_before(time) for time in (50, 100, 101, 200, 201)] == [0, 0, 3, 3, 8]


def test_a_time_index_is_cut_by_offset() -> None:
    index = time_index((100, 3), (200, 8), (300, 9))
    index.truncate(9)
    assert list(index.offsets) == [3, 8]
    index.truncate(0)
    assert len(index) == 0


def test_a_time_index_that_falls_is_not_believed() -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.from_bytes(struct.pack(">qIqI", 200, 3, 100, 8))


ABORTED = [AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 15, 30, 31)]


def test_aborted_transactions_come_back() -> None:
    content = aborted_to_bytes(ABORTED)
    assert content[:34] == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert aborted_from_bytes(content) == ABORTED


@pytest.mark.parametrize("content", [b"\0", aborted_to_bytes(ABORTED)[:-1], aborted_to_bytes(ABORTED[::-1])])
def test_a_damaged_transaction_index_is_not_believed(content: bytes) -> None:
    with pytest.raises(CorruptIndex):
        aborted_from_bytes(content)


def test_an_unknown_version_of_the_transaction_index_is_not_believed() -> None:
    with pytest.raises(CorruptIndex):
        aborted_from_bytes(b"\0\1" + aborted_to_bytes(ABORTED)[2:])
