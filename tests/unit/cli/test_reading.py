"""Which records a reader is to see."""

from __future__ import annotations

from appliance.cli.reading import VisibleRecords
from appliance.client.results import AbortedTransaction
from appliance.records.batch import stamp
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT, build_marker


def batch(base_offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False) -> bytes:
    return build_batch(
        [(0, None, value, ()) for value in values],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset: int, control_type: int, producer_id: int) -> bytes:
    data = bytearray(build_marker(control_type, 0, producer_id=producer_id, producer_epoch=0, now_ms=0))
    stamp(data, offset, 0)
    return bytes(data)


def values(visible: VisibleRecords) -> list[bytes | None]:
    return [record.value for record in visible]


def test_what_lies_before_the_asked_offset_is_dropped() -> None:
    visible = VisibleRecords(batch(10, b"a", b"b", b"c"), 11)
    assert values(visible) == [b"b", b"c"]
    assert visible.next_offset == 13


def test_a_batch_that_is_cut_off_waits_for_the_next_fetch() -> None:
    visible = VisibleRecords(batch(0, b"a") + batch(1, b"b")[:-1], 0)
    assert values(visible) == [b"a"]
    assert visible.next_offset == 1


def test_records_of_aborted_transactions_do_not_count_and_markers_are_not_shown() -> None:
    log = b"".join(
        [
            batch(0, b"gone", producer_id=7, transactional=True),
            batch(1, b"other", producer_id=8, transactional=True),
            marker(2, ABORT, producer_id=7),
            batch(3, b"kept", producer_id=7, transactional=True),
            marker(4, COMMIT, producer_id=7),
            batch(5, b"plain"),
            batch(6, b"gone again", producer_id=7, transactional=True),
            marker(7, ABORT, producer_id=7),
        ]
    )
    visible = VisibleRecords(log, 0, [AbortedTransaction(7, 6), AbortedTransaction(7, 0)])
    assert values(visible) == [b"other", b"kept", b"plain"]
    assert visible.next_offset == 8
