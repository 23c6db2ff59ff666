"""The transactional ids of one partition of `__transaction_state`: requests and time in; records and markers out."""

from __future__ import annotations

from collections.abc import Callable

from appliance.base.errors import ErrorCode, invariant
from appliance.coordinator.calls import Call, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.transactions import admin, beginning, ending, joining
from appliance.transactions.config import TransactionConfig
from appliance.transactions.context import (
    Context,
    DeadlineKey,
    EndDue,
    Ending,
    Event,
    ExpiryDue,
    TimeoutDue,
    TransactionEffect,
)
from appliance.transactions.records import encode_record
from appliance.transactions.refusals import refuse
from appliance.transactions.states import TransactionState
from appliance.transactions.stored import StoredTransactions, TransactionRecord
from appliance.wire.messages import describe_transactions, list_transactions
from appliance.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTransaction
from appliance.wire.messages.end_txn import EndTxnRequest
from appliance.wire.messages.init_producer_id import InitProducerIdRequest
from appliance.wire.schema import Struct

_EXPIRY_KEY = ("expiry", "")


class TransactionMachine:
    """Decides for `appliance.coordinator.shard.CoordinatorShard`.

    Requests are given to the shard with `after_writes_of` their transactional id: a decision sees the outcome of the
    one before. After each step of the shard, `take_markers` has what must be sent.
    """

    def __init__(
        self, config: TransactionConfig, stored: StoredTransactions, new_producer_id: Callable[[], int | None]
    ) -> None:
        self._context = Context(config, stored, new_producer_id)

    @property
    def stored(self) -> StoredTransactions:
        """What the log says."""
        return self._context.stored

    @property
    def deadlines(self) -> Deadlines[DeadlineKey, Event]:
        return self._context.deadlines

    def loaded(self, now: Moment) -> list[TransactionEffect]:
        """The stored state is complete: go on where the coordinator before this one stopped."""
        context = self._context
        for transactional_id, transaction in context.stored.by_id.items():
            if transaction.state is TransactionState.ONGOING:
                context.watch_timeout(transaction, now)
            elif transaction.state.is_preparing:
                context.end_soon(transactional_id)
        self._expire_later(now)
        return []

    def handle(self, call: Call, now: Moment) -> list[TransactionEffect]:
        """Decide a request that names one transactional id."""
        match call.request:
            case InitProducerIdRequest() as request:
                return beginning.init_producer_id(self._context, call, request, now)
            case AddPartitionsToTxnTransaction() as request:
                return joining.add_partitions(self._context, call, request, now)
            case EndTxnRequest() as request:
                return ending.end(self._context, call, request, now)
        invariant(False, f"{type(call.request).__name__} is no request to a transaction")
        return []

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        """One transactional id."""
        return admin.describe(self._context, transactional_id)

    def list_transactions(
        self, request: list_transactions.ListTransactionsRequest, now: Moment
    ) -> list[list_transactions.TransactionState]:
        """All transactional ids that pass the filters. Raises KafkaError: the pattern is no regular expression."""
        return admin.list_matching(self._context, request, now)

    def due(self, event: Event, now: Moment) -> list[TransactionEffect]:
        """A deadline has passed."""
        match event:
            case TimeoutDue(transactional_id):
                return ending.time_out(self._context, transactional_id, now)
            case EndDue(transactional_id):
                return ending.send_markers(self._context, transactional_id, now)
            case ExpiryDue():
                self._expire_later(now)
                return ending.expire(self._context, now)

    def replay(self, record: TransactionRecord) -> None:
        """Take over a committed record; a decided end is acted upon at once."""
        context, transactional_id = self._context, record.transactional_id
        context.stored.replay(record)
        transaction = record.transaction
        if transaction is not None and transaction.state.is_preparing:
            context.end_soon(transactional_id)
            return
        context.endings.pop(transactional_id, None)
        context.deadlines.cancel(("end", transactional_id))
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            context.deadlines.cancel(("timeout", transactional_id))
        elif ("timeout", transactional_id) not in context.deadlines:
            # The write took longer than the transaction may: look at once.
            context.watch_timeout_until(transactional_id, 0)

    def take_markers(self) -> list[Ending]:
        """Transactions whose markers are to be sent now; report each partition by `marker_written`."""
        taken, self._context.outbox = self._context.outbox, []
        return taken

    def marker_written(self, ended: Ending, topic: str, partition: int, now: Moment) -> list[TransactionEffect]:
        """A partition has the marker of a transaction, or is gone."""
        return ending.marker_written(self._context, ended, topic, partition, now)

    def wants_markers(self, ended: Ending) -> bool:
        """Whether markers of this transaction are left to be written."""
        return self._context.endings.get(ended.transaction.transactional_id) is ended

    def written(self, write: Write[TransactionRecord], now: Moment) -> list[TransactionEffect]:
        """Nothing is left to do after a write: `replay` sets what comes next."""
        return []

    def not_written(self, write: Write[TransactionRecord], error: ErrorCode, now: Moment) -> list[TransactionEffect]:
        """Clients are told by the shard, and what was decided on our own has a deadline of its own."""
        return []

    def unload(self) -> list[TransactionEffect]:
        """Nobody waits here: who waits, waits for a write."""
        return []

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""
        return refuse(call, error)

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """Key and value as they stand in the log."""
        return encode_record(record)

    def _expire_later(self, now: Moment) -> None:
        due_ms = now.monotonic_ms + self._context.config.expiry_interval_ms
        self._context.deadlines.set(_EXPIRY_KEY, due_ms, ExpiryDue())
