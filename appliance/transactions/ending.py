"""EndTxn, timeouts, and the markers that end a transaction in each of its partitions.

A decided end stands in the log before anybody hears of it; from then on only its markers are left to be written, by
this coordinator or by the next one. When all are, the id is free for its next transaction.

With version 5 of EndTxn (KIP-890) each end raises the epoch. A repeated request is then known by its epoch, which is
one behind, and an end without any partition is no error.
"""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.coordinator.moment import Moment
from appliance.transactions.context import Context, Ending, TransactionEffect
from appliance.transactions.refusals import refusal
from appliance.transactions.states import TransactionState
from appliance.transactions.stored import EXHAUSTED_EPOCH, NO_PRODUCER_ID, Transaction, TransactionRecord
from appliance.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

NEW_EPOCH_SINCE = 5
RETRY_MS = 1_000
"""How long what a coordinator does by itself waits for its next try."""

_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def end(context: Context, call: Call, request: EndTxnRequest, now: Moment) -> list[TransactionEffect]:
    """Decide how a transaction ends."""
    if not request.transactional_id:
        return [refusal(call, ErrorCode.INVALID_REQUEST)]
    known = context.stored.by_id.get(request.transactional_id)
    if known is None:
        return [refusal(call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)]
    raises_epoch = call.version >= NEW_EPOCH_SINCE
    verdict = _judge_with_new_epochs(known, request) if raises_epoch else _judge(known, request)
    if isinstance(verdict, ErrorCode):
        if verdict is ErrorCode.NONE:
            return [Answer(call, _ended(known, call))]
        return [refusal(call, verdict)]
    next_producer_id = NO_PRODUCER_ID
    if raises_epoch and known.is_exhausted:
        fresh = context.new_producer_id()
        if fresh is None:
            return [refusal(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        next_producer_id = fresh
    prepared = known.prepared(
        commit=request.committed,
        client_version=2 if raises_epoch else 0,
        next_producer_id=next_producer_id,
        now_ms=now.wall_ms,
        without_partitions=verdict,
    )
    return [context.write(prepared, call, _ended(prepared, call))]


def _ended(transaction: Transaction, call: Call) -> EndTxnResponse:
    if call.version < NEW_EPOCH_SINCE:
        return EndTxnResponse()
    producer_id, epoch = transaction.for_the_producer
    return EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)


def _judge(known: Transaction, request: EndTxnRequest) -> ErrorCode | bool:
    """Before KIP-890. NONE: it has ended like this already. False: go on and end it."""
    if known.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING:
        return False
    if known.state is TransactionState.EMPTY or (known.state in _COMMITTED) != request.committed:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state.is_preparing else ErrorCode.NONE


def _judge_with_new_epochs(known: Transaction, request: EndTxnRequest) -> ErrorCode | bool:
    """KIP-890. NONE: a repeated request. Otherwise go on; true: nothing was written, the epoch rises all the same."""
    overflowed = (
        known.previous_producer_id == request.producer_id
        and request.producer_epoch == EXHAUSTED_EPOCH
        and known.producer_epoch == 0
    )
    bumped = known.client_version >= 2 and known.producer_epoch == request.producer_epoch + 1
    if known.producer_id != request.producer_id and not overflowed:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    same = known.producer_epoch == request.producer_epoch
    if known.state.is_preparing:
        if not bumped:
            return ErrorCode.PRODUCER_FENCED
        is_same_end = (known.state in _COMMITTED) == request.committed
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_same_end else ErrorCode.INVALID_TXN_STATE
    if known.state in _COMPLETE:
        if not (same or bumped or overflowed):
            return ErrorCode.PRODUCER_FENCED
        if bumped or overflowed:
            is_same_end = (known.state in _COMMITTED) == request.committed
            return ErrorCode.NONE if is_same_end else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.INVALID_TXN_STATE if request.committed else True
    if not same:
        return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING:
        return False
    return ErrorCode.INVALID_TXN_STATE if request.committed else True


def time_out(context: Context, transactional_id: str, now: Moment) -> list[TransactionEffect]:
    """Abort a transaction whose time is over; its producer is fenced."""
    known = context.stored.by_id.get(transactional_id)
    if known is None or known.state is not TransactionState.ONGOING:
        return []
    if now.wall_ms < known.start_ms + known.timeout_ms:
        context.watch_timeout(known, now)
        return []
    # Should an earlier write of this id be under way, its outcome counts first, and this one is dropped: look again.
    context.watch_timeout_until(transactional_id, now.monotonic_ms + RETRY_MS)
    return [context.write(known.fenced(now.wall_ms), only_alone=True)]


def send_markers(context: Context, transactional_id: str, now: Moment) -> list[TransactionEffect]:
    """Have the markers of a decided transaction written; when none is left, note its completion."""
    known = context.stored.by_id.get(transactional_id)
    if known is None or not known.state.is_preparing:
        return []
    ending = context.endings.get(transactional_id)
    if ending is None:
        ending = context.endings[transactional_id] = Ending(known, set(known.partitions))
        if ending.left:
            context.outbox.append(ending)
    if ending.left:
        return []
    # Should this write fail, it is tried again; a second one while the first is under way is dropped.
    context.end_soon(transactional_id, now.monotonic_ms + RETRY_MS)
    return [context.write(known.completed(now.wall_ms), only_alone=True)]


def marker_written(
    context: Context, ending: Ending, topic: str, partition: int, now: Moment
) -> list[TransactionEffect]:
    """A leader has written the marker, or its partition is gone."""
    transactional_id = ending.transaction.transactional_id
    if context.endings.get(transactional_id) is not ending:
        return []
    ending.left.discard((topic, partition))
    return [] if ending.left else send_markers(context, transactional_id, now)


def expire(context: Context, now: Moment) -> list[TransactionEffect]:
    """Forget ids that nobody has used for `transactional.id.expiration.ms`."""
    oldest_ms = now.wall_ms - context.config.id_expiration_ms
    effects: list[TransactionEffect] = []
    for transactional_id, transaction in context.stored.by_id.items():
        if transaction.state.is_idle and transaction.update_ms <= oldest_ms:
            effects.append(Write(transactional_id, (TransactionRecord(transactional_id, None),), only_alone=True))
    return effects
