"""What a leader asks about transactions before it appends, as Apache Kafka 4.3 sees it. Pure."""

from __future__ import annotations

from appliance.base.errors import ErrorCode, KafkaError
from appliance.log.producer_state import ProducerState
from appliance.records.batch import BatchHeader

NEW_EPOCH_AT_END = 2
"""Version of transactions in which a marker carries the epoch after that of the batches (KIP-890)."""


def check_transactional(state: ProducerState, header: BatchHeader, transactional_id: str | None) -> None:
    """A batch and its request agree about being in a transaction, and so does what the producer wrote before.

    Raises:
        KafkaError: they do not.
    """
    if header.is_transactional:
        if not transactional_id:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the request has no transactional id")
    elif header.producer_id >= 0 and is_open(state, header.producer_id, header.producer_epoch):
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the producer has an open transaction in this partition")


def is_open(state: ProducerState, producer_id: int, producer_epoch: int) -> bool:
    """Whether the producer's transaction has begun in this partition, so that its coordinator knows of it."""
    known = state.entry_of(producer_id)
    return known is not None and known.transaction_first_offset >= 0 and known.epoch == producer_epoch


def check_marker(
    state: ProducerState, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> ErrorCode | None:
    """Whether a marker may be appended: None if so, else the code to answer.

    One that stands there already is appended again: it may have failed the first time after it was written.
    """
    known = state.entry_of(producer_id)
    if known is None:
        return None
    if coordinator_epoch < known.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    if producer_epoch < known.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    is_late = producer_epoch == known.epoch and known.transaction_first_offset >= 0
    if is_late and transaction_version >= NEW_EPOCH_AT_END:
        # The transaction that is open here is the next one.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return None
