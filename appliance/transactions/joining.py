"""AddPartitionsToTxn: partitions join a transaction, or a leader asks whether one is in it (KIP-890)."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.moment import Moment
from appliance.transactions.context import Context, TransactionEffect
from appliance.transactions.refusals import partition_results, refusal
from appliance.transactions.states import TransactionState
from appliance.transactions.stored import Transaction
from appliance.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction

BY_BROKERS_SINCE = 4
"""From this version on brokers ask for their clients, which then follow version 2 of transactions."""


def add_partitions(
    context: Context, call: Call, request: AddPartitionsToTxnTransaction, now: Moment
) -> list[TransactionEffect]:
    """Decide whether the partitions take part."""
    known = context.stored.by_id.get(request.transactional_id)
    error = _refusal_of(known, request)
    if known is None or error is not ErrorCode.NONE:
        return [refusal(call, error)]
    wanted = {(topic.name, partition) for topic in request.topics for partition in topic.partitions}
    if request.verify_only:
        return [_verified(call, request, known)]
    response = partition_results(request, lambda topic, partition: ErrorCode.NONE)
    if known.state is TransactionState.ONGOING and wanted <= known.partitions:
        return [Answer(call, response)]
    begun = known.begun(wanted, 2 if call.version >= BY_BROKERS_SINCE else 0, now.wall_ms)
    context.watch_timeout(begun, now)
    return [context.write(begun, call, response)]


def _verified(call: Call, request: AddPartitionsToTxnTransaction, known: Transaction) -> TransactionEffect:
    """Whether the producer may write to the partitions under its open transaction."""
    is_open = known.state is TransactionState.ONGOING

    def code_of(topic: str, partition: int) -> ErrorCode:
        return ErrorCode.NONE if is_open and (topic, partition) in known.partitions else ErrorCode.TRANSACTION_ABORTABLE

    return Answer(call, partition_results(request, code_of))


def _refusal_of(known: Transaction | None, request: AddPartitionsToTxnTransaction) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if known is None or known.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state.is_preparing else ErrorCode.NONE
