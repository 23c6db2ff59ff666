"""What a leader asks before it appends a marker or a batch of a transaction."""

from __future__ import annotations

import pytest

from appliance.base.errors import ErrorCode, KafkaError
from appliance.log.producer_state import ProducerState
from appliance.partition.transaction_checks import check_marker, check_transactional, is_open
from appliance.records.batch import BatchHeader, parse_header
from appliance.records.builder import build_batch
from appliance.records.control import COMMIT, EndTransactionMarker, build_marker

PRODUCER = 7


def header(epoch: int, *, transactional: bool = True, sequence: int = 0) -> BatchHeader:
    batch = build_batch(
        [(1, b"k", b"v", ())],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return parse_header(batch)


def open_at(epoch: int) -> ProducerState:
    state = ProducerState()
    state.update(header(epoch), 10, 1)
    return state


def ended_at(epoch: int, coordinator_epoch: int = 3) -> ProducerState:
    state = open_at(epoch)
    marker = build_marker(COMMIT, coordinator_epoch, producer_id=PRODUCER, producer_epoch=epoch, now_ms=1)
    state.end_transaction(parse_header(marker), EndTransactionMarker(COMMIT, coordinator_epoch), 11, 1)
    return state


def test_a_marker_of_an_older_coordinator_or_producer_is_refused() -> None:
    state = ended_at(5, coordinator_epoch=3)
    assert check_marker(state, PRODUCER, 5, 2, 0) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert check_marker(state, PRODUCER, 4, 3, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert check_marker(ProducerState(), PRODUCER, 0, 0, 2) is None, "an unknown producer may have been forgotten"


def test_a_repeated_marker_is_written_again_and_a_late_one_does_not_end_the_next_transaction() -> None:
    assert check_marker(ended_at(5), PRODUCER, 5, 3, 2) is None
    assert check_marker(open_at(5), PRODUCER, 5, 3, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert check_marker(open_at(5), PRODUCER, 6, 3, 2) is None
    assert check_marker(open_at(5), PRODUCER, 5, 3, 0) is None, "before KIP-890 the epoch is that of the batches"


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    assert is_open(open_at(5), PRODUCER, 5)
    assert not is_open(open_at(5), PRODUCER, 6)
    assert not is_open(ended_at(5), PRODUCER, 5)


def test_batches_and_requests_agree_about_being_in_a_transaction() -> None:
    check_transactional(open_at(5), header(5), "t")
    check_transactional(ended_at(5), header(5, transactional=False), "t")
    with pytest.raises(KafkaError) as raised:
        check_transactional(open_at(5), header(5), None)
    assert raised.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError) as raised:
        check_transactional(open_at(5), header(5, transactional=False), "t")
    assert raised.value.code is ErrorCode.INVALID_TXN_STATE


def test_batches_without_sequences_are_asked_for_their_epoch_only() -> None:
    state = open_at(5)
    assert state.check(header(5, sequence=-1)) is None
    state.update(header(5, sequence=-1), 11, 1)
    assert state.check(header(5, sequence=-1)) is None, "no duplicate of the one before"
    assert state.check(header(6, sequence=-1)) is None
    assert state.check(header(4, sequence=-1)) is ErrorCode.INVALID_PRODUCER_EPOCH
