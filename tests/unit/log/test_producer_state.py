"""Idempotent producers and transactions, as one partition sees them."""

from __future__ import annotations

import random

import pytest

from appliance.base.errors import ErrorCode
from appliance.log.indexes import AbortedTransaction
from appliance.log.producer_snapshot import CorruptSnapshot, SnapshotEntry, snapshot_from_bytes, snapshot_to_bytes
from appliance.log.producer_state import Duplicate, ProducerState, snapshot_of
from appliance.records.batch import BatchHeader, parse_header
from appliance.records.control import ABORT, COMMIT, EndTransactionMarker
from tests.support.logs import batch_of

LAST_SEQUENCE = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7, transactional: bool = False
) -> BatchHeader:
    values = [b"v"] * count
    return parse_header(
        batch_of(
            *values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
    )


def state_after(*batches: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 0
    for batch in batches:
        assert state.check(batch) is None
        state.update(batch, offset, now_ms=offset)
        offset += batch.last_offset_delta + 1
    state.undo.clear()
    return state


def end(
    state: ProducerState, offset: int, kind: int, *, epoch: int = 0, producer: int = 7
) -> AbortedTransaction | None:
    marker = parse_header(batch_of(b"", producer_id=producer, producer_epoch=epoch, base_sequence=-1))
    return state.end_transaction(marker, EndTransactionMarker(kind, 5), offset, now_ms=offset)


def test_batches_in_sequence_are_taken() -> None:
    state = state_after(header(0, 3), header(3, 2))
    assert state.check(header(5)) is None


@pytest.mark.parametrize("sequence", [4, 6, 100])
def test_a_gap_is_out_of_order(sequence: int) -> None:
    state = state_after(header(0, 3), header(3, 2))
    assert state.check(header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_gets_its_old_offsets() -> None:
    state = state_after(header(0, 3), header(3, 2))
    assert state.check(header(0, 3)) == Duplicate(0, 2, 0)
    assert state.check(header(3, 2)) == Duplicate(3, 4, 3)


def test_a_batch_that_repeats_only_a_part_is_out_of_order() -> None:
    state = state_after(header(0, 3))
    assert state.check(header(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(1, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_remembered() -> None:
    state = state_after(*(header(n) for n in range(7)))
    assert state.check(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [state.check(header(n)) for n in range(2, 7)] == [Duplicate(n, n, n) for n in range(2, 7)]


def test_sequences_go_on_at_0_after_the_largest() -> None:
    state = state_after(header(LAST_SEQUENCE - 1, 2), header(0))
    assert state.check(header(1)) is None
    assert state.check(header(LAST_SEQUENCE - 1, 2)) == Duplicate(0, 1, 0)


def test_a_batch_may_straddle_the_largest_sequence() -> None:
    state = state_after(header(LAST_SEQUENCE, 3))
    assert state.entries[7].last_sequence == 1
    assert state.check(header(2)) is None
    assert state.check(header(LAST_SEQUENCE, 3)) == Duplicate(0, 2, 0)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check(header(4711)) is None


def test_a_new_epoch_begins_at_0() -> None:
    state = state_after(header(0, 3, epoch=1))
    assert state.check(header(3, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=2)) is None


def test_an_old_epoch_is_fenced() -> None:
    state = state_after(header(0, epoch=3))
    assert state.check(header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_batches_of_an_old_epoch_are_no_duplicates() -> None:
    state = state_after(header(0, epoch=1), header(0, epoch=2))
    assert state.check(header(1, epoch=2)) is None
    assert len(state.entries[7].batches) == 1


def test_producers_do_not_mix() -> None:
    state = state_after(header(0, producer=1), header(0, producer=2), header(1, producer=1))
    assert state.check(header(1, producer=2)) is None
    assert state.check(header(2, producer=1)) is None
    assert len(state) == 2


def test_idle_producers_are_forgotten_but_not_within_a_transaction() -> None:
    state = ProducerState()
    state.update(header(0, producer=1), 0, now_ms=1_000)
    state.update(header(0, producer=2), 1, now_ms=5_000)
    state.update(header(0, producer=3, transactional=True), 2, now_ms=1_000)
    assert state.expire(now_ms=5_999, expiration_ms=5_000) == 0
    assert state.expire(now_ms=6_000, expiration_ms=5_000) == 1
    assert set(state.entries) == {2, 3}
    assert state.forget_idle() == 1
    assert set(state.entries) == {3}


def test_what_a_failed_write_added_is_taken_back_exactly() -> None:
    source = random.Random(4)
    for _ in range(200):
        state = state_after(*(header(n, producer=1) for n in range(source.randint(1, 8))), header(0, producer=2))
        before, ongoing = state.entries, state.ongoing_transactions
        sequence = state.entries[1].last_sequence
        for offset in range(100, 100 + source.randint(1, 12)):
            choice = source.random()
            if choice < 0.6:
                sequence += 1
                state.update(header(sequence, producer=1, transactional=choice < 0.3), offset, 9)
            elif choice < 0.8:
                state.update(header(0, producer=offset), offset, 9)
            else:
                end(state, offset, ABORT, producer=1)
        state.take_back(end_offset=100)
        assert (state.entries, state.ongoing_transactions) == (before, ongoing)
        assert state.first_unstable_offset(1000) is None


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    state = state_after(header(0), header(1, transactional=True), header(2, transactional=True))
    assert state.first_unstable_offset(3) == 1
    assert state.ongoing_transactions == [(7, 1)]
    assert end(state, 3, COMMIT) is None
    assert state.first_unstable_offset(3) == 1
    assert state.first_unstable_offset(4) is None


def test_an_abort_is_noted_with_the_last_stable_offset() -> None:
    state = state_after(header(0, transactional=True), header(0, producer=8, transactional=True))
    assert end(state, 2, ABORT, producer=8) == AbortedTransaction(8, 1, 2, last_stable_offset=0)
    assert end(state, 3, ABORT) == AbortedTransaction(7, 0, 3, last_stable_offset=4)
    assert state.first_unstable_offset(4) is None


def test_a_marker_without_a_transaction_only_raises_the_epoch() -> None:
    state = state_after(header(0))
    assert end(state, 1, ABORT, epoch=4) is None
    assert state.entries[7].epoch == 4
    assert state.check(header(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(header(0, epoch=4)) is None
    assert state.coordinator_epoch_of(7) == 5
    assert state.coordinator_epoch_of(99) == -1


def test_after_a_marker_of_the_same_epoch_the_sequence_goes_on() -> None:
    state = state_after(header(0, 3, transactional=True))
    end(state, 3, COMMIT)
    assert state.check(header(3, transactional=True)) is None
    assert state.check(header(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_keeps_the_last_batch_and_the_transaction() -> None:
    state = state_after(header(0, 3), header(3, 2, transactional=True))
    content = snapshot_to_bytes(snapshot_of(state.copy()))
    assert snapshot_from_bytes(content) == [SnapshotEntry(7, 0, 4, 4, 1, 3, -1, 3)]
    again = ProducerState()
    again.load(snapshot_from_bytes(content))
    assert again.check(header(5)) is None
    assert again.check(header(3, 2)) == Duplicate(3, 4, 3)
    assert again.check(header(0, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.first_unstable_offset(5) == 3


def test_a_snapshot_of_a_producer_without_batches() -> None:
    state = ProducerState()
    end(state, 3, COMMIT, epoch=2)
    content = snapshot_to_bytes(snapshot_of(state.copy()))
    assert snapshot_from_bytes(content) == [SnapshotEntry(7, 2, -1, -1, 0, 3, 5, -1)]
    again = ProducerState()
    again.load(snapshot_from_bytes(content))
    assert again.entries == state.entries


def test_a_snapshot_remembers_sequences_that_wrapped() -> None:
    state = state_after(header(LAST_SEQUENCE, 3))
    again = ProducerState()
    again.load(snapshot_of(state.copy()))
    assert again.check(header(LAST_SEQUENCE, 3)) == Duplicate(0, 2, 0)


def test_a_damaged_snapshot_is_not_believed() -> None:
    content = snapshot_to_bytes(snapshot_of(state_after(header(0)).copy()))
    for damaged in (b"", content[:-1], content + b"\0", b"\0\2" + content[2:], content[:-1] + b"\7"):
        with pytest.raises(CorruptSnapshot):
            snapshot_from_bytes(damaged)


def test_there_is_a_limit_to_the_producers_that_are_remembered() -> None:
    state = ProducerState(limit=2_000)
    busy = range(0, 2_000, 500)
    for number in range(10_000):
        state.update(header(0, producer=number), number, now_ms=number)
        for producer in busy:
            if number > producer:
                state.update(header(number, producer=producer), number, now_ms=number)
    assert 1_800 <= len(state) <= 2_000
    assert set(busy) <= set(state.entries), "those who write stay"
    assert {9_999, 9_998, 9_990} <= set(state.entries), "and those who came last"


def test_an_open_transaction_is_never_forgotten_for_room() -> None:
    state = ProducerState(limit=20)
    state.update(header(0, producer=1, transactional=True), 0, now_ms=0)
    for number in range(2, 500):
        state.update(header(0, producer=number), number, now_ms=number)
    assert state.ongoing_transactions == [(1, 0)]
    assert 1 in state.entries and len(state) <= 20


def test_what_was_forgotten_for_a_write_that_failed_does_no_harm() -> None:
    state = ProducerState(limit=20)
    for number in range(20):
        state.update(header(0, producer=number), number, now_ms=number)
    state.undo.clear()
    state.update(header(1, producer=0), 20, now_ms=20)
    state.update(header(0, producer=50), 21, now_ms=21)
    state.take_back(20)
    assert 50 not in state.entries
    assert state.entries[0].last_sequence == 0
