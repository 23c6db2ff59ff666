"""DescribeTransactions and ListTransactions (KIP-664): a coordinator's ids, to look at."""

from __future__ import annotations

import re

from appliance.base.errors import ErrorCode, KafkaError
from appliance.coordinator.moment import Moment
from appliance.transactions.context import Context
from appliance.transactions.records import by_topic
from appliance.transactions.states import STATES_BY_TEXT, TransactionState
from appliance.transactions.stored import Transaction
from appliance.wire.messages import describe_transactions, list_transactions


def describe(context: Context, transactional_id: str) -> describe_transactions.TransactionState:
    """One transactional id; of a decided transaction the partitions that have no marker yet."""
    known = context.stored.by_id.get(transactional_id)
    if known is None or known.state is TransactionState.DEAD:
        return describe_transactions.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id
        )
    ending = context.endings.get(transactional_id)
    partitions = frozenset(ending.left) if ending is not None else known.partitions
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.text,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.start_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=numbers) for topic, numbers in by_topic(partitions)
        ],
    )


def _row(known: Transaction) -> list_transactions.TransactionState:
    """One row of the list."""
    return list_transactions.TransactionState(
        transactional_id=known.transactional_id, producer_id=known.producer_id, transaction_state=known.state.text
    )


def list_matching(
    context: Context, request: list_transactions.ListTransactionsRequest, now: Moment
) -> list[list_transactions.TransactionState]:
    """All transactional ids that pass the filters. Raises KafkaError: the pattern is no regular expression."""
    try:
        pattern = re.compile(request.transactional_id_pattern or "")
    except re.error as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    states = {STATES_BY_TEXT[text] for text in request.state_filters if text in STATES_BY_TEXT}
    rows = []
    for known in context.stored.by_id.values():
        if known.state is TransactionState.DEAD or (request.state_filters and known.state not in states):
            continue
        if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
            continue
        if request.duration_filter >= 0 and not _runs_longer(known, request.duration_filter, now):
            continue
        if request.transactional_id_pattern and not pattern.fullmatch(known.transactional_id):
            continue
        rows.append(_row(known))
    return rows


def unknown_states(request: list_transactions.ListTransactionsRequest) -> list[str]:
    """Filters that name no state."""
    return [text for text in request.state_filters if text not in STATES_BY_TEXT]


def _runs_longer(known: Transaction, duration_ms: int, now: Moment) -> bool:
    """One that has not begun counts as running since ever, as with Kafka: its start is -1."""
    return now.wall_ms - known.start_ms > duration_ms
