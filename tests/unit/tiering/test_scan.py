from __future__ import annotations

import pytest
from crc32c import crc32c

from appliance.records.control import ABORT, COMMIT
from appliance.tiering.layout import AbortedTransaction, CorruptObject, DecidedTransaction
from appliance.tiering.scan import OpenTransaction, find_markers
from tests.support.tier_objects import data_batch, marker_batch, scan_bytes


def test_a_scan_counts_and_checks_everything() -> None:
    data = data_batch(10, [b"a", b"b"], timestamp=500) + data_batch(12, [b"c"], timestamp=400)
    scan = scan_bytes(data, 10)
    assert (scan.batches, scan.records, scan.next_offset) == (2, 3, 13)
    assert (scan.first_timestamp, scan.max_timestamp) == (500, 501)
    assert scan.data_crc32c == crc32c(data)


def test_batches_larger_and_smaller_than_a_piece_are_walked_alike() -> None:
    batches = [data_batch(0, [b"x" * 300_000]), data_batch(1, [b"y"]), data_batch(2, [b"z" * 65_400])]
    batches += [data_batch(3 + n, [b"w" * n]) for n in range(700)]
    data = b"".join(batches)
    scan = scan_bytes(data, 0)
    assert (scan.batches, scan.next_offset, scan.data_crc32c) == (703, 703, crc32c(data))


def test_an_empty_segment_has_no_times() -> None:
    scan = scan_bytes(b"", 7)
    assert (scan.batches, scan.next_offset, scan.first_timestamp, scan.max_timestamp) == (0, 7, -1, -1)
    assert scan.time_index == []


def test_only_records_of_the_listed_part_are_counted_as_listed() -> None:
    data = data_batch(0, [b"a", b"b"]) + data_batch(2, [b"c"]) + data_batch(3, [b"d", b"e"])
    assert scan_bytes(data, 0, listed_from=2).listed_records == 3


def test_an_interval_of_bytes_lies_between_index_entries() -> None:
    batches = [data_batch(100 + n, [b"v" * 100], timestamp=1_000 + n) for n in range(100)]
    data, size = b"".join(batches), len(batches[0])
    scan = scan_bytes(data, 100, index_interval_bytes=size * 9)
    positions = [entry.position for entry in scan.offset_index]
    assert positions == [size * n for n in range(10, 100, 10)]
    assert all(data[e.position + 7] == 100 + e.relative_offset for e in scan.offset_index)
    assert scan.time_index[-1] == (1_099, 99)


@pytest.mark.parametrize("cut", [1, 30, 61, 70])
def test_a_segment_that_is_cut_off_is_refused(cut: int) -> None:
    data = data_batch(0, [b"a"]) + data_batch(1, [b"b" * 40])
    with pytest.raises(CorruptObject):
        scan_bytes(data[:-cut], 0)


def test_offsets_that_go_back_are_refused() -> None:
    with pytest.raises(CorruptObject, match="offset 3 after 4"):
        scan_bytes(data_batch(4, [b"a"]) + data_batch(3, [b"a"]), 4)


def test_aborted_transactions_are_listed_also_when_they_began_before_the_segment() -> None:
    data = b"".join(
        [
            data_batch(10, [b"a"], producer_id=1, transactional=True),
            data_batch(11, [b"b"], producer_id=2, transactional=True),
            marker_batch(12, ABORT, 1),
            marker_batch(13, COMMIT, 2),
            marker_batch(14, ABORT, 3),
            data_batch(15, [b"c"], producer_id=4, transactional=True),
        ]
    )
    scan = scan_bytes(data, 10, open_transactions={3: OpenTransaction(4, 0)})
    assert scan.aborted == [AbortedTransaction(1, 10, 12), AbortedTransaction(3, 4, 14)]
    assert scan.open == {4: OpenTransaction(15, 0)}


def test_markers_behind_the_segment_are_found_and_no_batch_behind_the_last_is_read() -> None:
    behind = iter(
        [
            data_batch(20, [b"x"], producer_id=1, transactional=True),
            marker_batch(21, COMMIT, 9),
            marker_batch(22, ABORT, 1),
            marker_batch(23, COMMIT, 2),
            data_batch(24, [b"x"]),
        ]
    )
    aborted, decided = find_markers(behind, {1: OpenTransaction(5, 0), 2: OpenTransaction(8, 0)})
    assert aborted == [AbortedTransaction(1, 5, 22)]
    assert decided == [DecidedTransaction(1, 0, 7, 5, 22, ABORT), DecidedTransaction(2, 0, 7, 8, 23, COMMIT)]
    assert len(list(behind)) == 1


def test_a_transaction_without_a_marker_cannot_be_tiered() -> None:
    with pytest.raises(CorruptObject, match=r"no marker .* \[1\]"):
        find_markers(iter([]), {1: OpenTransaction(5, 0)})
