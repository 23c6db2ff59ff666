"""Offsets of open transactions, as the log tells of them."""

from __future__ import annotations

from appliance.coordinator.loader import load, replaying
from appliance.groups.records import decode_record, encode_record
from appliance.groups.stored import (
    CommittedOffset,
    LoadedTransactions,
    OffsetRecord,
    PendingOffsetRecord,
    StoredGroups,
    TransactionEnded,
)
from appliance.records.builder import build_batch
from appliance.records.control import ABORT, COMMIT, build_marker


def offset(number: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, CommittedOffset(number))


def pending(producer_id: int, number: int) -> PendingOffsetRecord:
    return PendingOffsetRecord(producer_id, offset(number))


def replayed(*records: object) -> StoredGroups:
    stored = StoredGroups()
    for record in records:
        stored.replay(record)  # type: ignore[arg-type]
    return stored


def committed(stored: StoredGroups) -> int | None:
    found = stored.offset("g", "t", 0)
    return None if found is None else found.offset


def test_a_pending_offset_counts_when_its_transaction_is_committed_and_never_when_aborted() -> None:
    open_one = replayed(offset(1), pending(7, 5))
    assert (committed(open_one), open_one.is_pending("g", "t", 0), open_one.is_pending("g", "t", 1)) == (1, True, False)
    assert committed(replayed(offset(1), pending(7, 5), TransactionEnded(7, True))) == 5
    assert committed(replayed(offset(1), pending(7, 5), TransactionEnded(7, False))) == 1
    assert committed(replayed(offset(1), pending(7, 5), TransactionEnded(8, True))) == 1, "another's end"


def test_the_last_record_in_the_log_counts_whichever_transaction_ends_last() -> None:
    """So that a log that was compacted says the same."""
    assert committed(replayed(pending(7, 5), offset(6), TransactionEnded(7, True))) == 6
    assert committed(replayed(pending(7, 5), pending(8, 6), TransactionEnded(8, True), TransactionEnded(7, True))) == 6


def test_a_group_with_nothing_but_pending_offsets_is_there() -> None:
    assert "g" in replayed(pending(7, 5))
    assert "g" not in replayed(pending(7, 5), TransactionEnded(7, False))


def test_a_load_comes_to_the_state_that_was_left() -> None:
    def batch(record: OffsetRecord, producer_id: int) -> bytes:
        key, value = encode_record(record)
        return build_batch([(1, key, value, ())], producer_id=producer_id, producer_epoch=0, transactional=True)

    def marker(producer_id: int, kind: int) -> bytes:
        return build_marker(kind, 0, producer_id=producer_id, producer_epoch=0, now_ms=1)

    batches = [batch(offset(5), 7), batch(offset(6), 8), marker(7, COMMIT), marker(8, ABORT), batch(offset(9), 9)]
    stored = StoredGroups()
    load(batches, replaying(decode_record, stored), LoadedTransactions(stored, decode_record))
    assert stored == replayed(offset(5), pending(9, 9))
