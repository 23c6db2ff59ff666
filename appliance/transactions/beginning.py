"""InitProducerId: a producer begins (again) under a transactional id, and whoever wrote under it before is fenced.

- A transaction that its predecessor left open is aborted first; the producer asks again (CONCURRENT_TRANSACTIONS).
- With an id and epoch of its own (KIP-360) a producer raises its epoch after an error, unless it was fenced meanwhile.
- When a producer id has no epochs left, the next one takes over.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.coordinator.moment import Moment
from appliance.transactions.context import Context, TransactionEffect
from appliance.transactions.refusals import refusal
from appliance.transactions.states import TransactionState
from appliance.transactions.stored import EXHAUSTED_EPOCH, NO_EPOCH, NO_PRODUCER_ID, Transaction
from appliance.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    context: Context, call: Call, request: InitProducerIdRequest, now: Moment
) -> list[TransactionEffect]:
    """Decide the next producer id and epoch of a transactional id."""
    if not request.transactional_id or (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return [refusal(call, ErrorCode.INVALID_REQUEST)]
    if not 0 < request.transaction_timeout_ms <= context.config.max_timeout_ms:
        return [refusal(call, ErrorCode.INVALID_TRANSACTION_TIMEOUT)]
    known = context.stored.by_id.get(request.transactional_id)
    if known is None:
        return _first(context, call, request, now)
    if request.producer_id != NO_PRODUCER_ID and not _is_of(known, request):
        return [refusal(call, ErrorCode.PRODUCER_FENCED)]
    if known.state.is_preparing:
        return [refusal(call, ErrorCode.CONCURRENT_TRANSACTIONS)]
    if known.state is TransactionState.ONGOING:
        fenced = context.write(known.fenced(now.wall_ms))
        return [fenced, refusal(call, ErrorCode.CONCURRENT_TRANSACTIONS)]
    return _again(context, call, request, known, now)


def _first(context: Context, call: Call, request: InitProducerIdRequest, now: Moment) -> list[TransactionEffect]:
    producer_id = context.new_producer_id()
    if producer_id is None:
        return [refusal(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    transactional_id = request.transactional_id or ""
    begun = Transaction(transactional_id, producer_id, 0, request.transaction_timeout_ms, update_ms=now.wall_ms)
    return [_begun(context, call, begun)]


def _again(
    context: Context, call: Call, request: InitProducerIdRequest, known: Transaction, now: Moment
) -> list[TransactionEffect]:
    names_itself = request.producer_epoch != NO_EPOCH
    producer_id, epoch, last_epoch = known.producer_id, known.producer_epoch + 1, NO_EPOCH
    if known.is_exhausted and (not names_itself or request.producer_epoch == known.producer_epoch):
        fresh = context.new_producer_id()
        if fresh is None:
            return [refusal(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        producer_id, epoch, last_epoch = fresh, 0, known.producer_epoch if names_itself else NO_EPOCH
    elif names_itself:
        if request.producer_epoch == known.producer_epoch:
            last_epoch = known.producer_epoch
        elif request.producer_epoch == known.last_epoch:
            # It asks again: the first answer was lost.
            epoch, last_epoch = known.producer_epoch, known.last_epoch
        else:
            return [refusal(call, ErrorCode.PRODUCER_FENCED)]
    timeout_ms = request.transaction_timeout_ms
    return [_begun(context, call, known.started_anew(producer_id, epoch, last_epoch, timeout_ms, now.wall_ms))]


def _begun(context: Context, call: Call, transaction: Transaction) -> TransactionEffect:
    response = InitProducerIdResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    return context.write(transaction, call, response)


def _is_of(known: Transaction, request: InitProducerIdRequest) -> bool:
    """Whether the producer that names itself is the last one, or was until its epochs were used up."""
    return request.producer_id == known.producer_id or (
        request.producer_id == known.previous_producer_id and request.producer_epoch >= EXHAUSTED_EPOCH
    )
