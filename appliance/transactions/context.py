"""What the deciding functions of this package share: the transactional ids of one partition, and their deadlines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.moment import Moment
from appliance.transactions.config import TransactionConfig
from appliance.transactions.stored import StoredTransactions, TopicPartitionPair, Transaction, TransactionRecord
from appliance.wire.schema import Struct

TransactionEffect = Effect[TransactionRecord]
DeadlineKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TimeoutDue:
    """An open transaction may have run for as long as its producer allowed."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class EndDue:
    """The end of a transaction is decided: have its markers written, or note that they all are."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpiryDue:
    """Look for transactional ids that nobody has used for long."""


Event = TimeoutDue | EndDue | ExpiryDue


@dataclass(slots=True)
class Ending:
    """Markers of one transaction that are not written yet."""

    transaction: Transaction
    """As it was decided; markers carry its producer id and epoch."""
    left: set[TopicPartitionPair]


@dataclass(slots=True)
class Context:
    """The transactional ids of one partition of `__transaction_state`."""

    config: TransactionConfig
    stored: StoredTransactions
    new_producer_id: Callable[[], int | None]
    """None: none is at hand; whoever asked comes again."""
    endings: dict[str, Ending] = field(default_factory=dict)
    outbox: list[Ending] = field(default_factory=list)
    """Whose markers are to be sent to the leaders of their partitions."""
    deadlines: Deadlines[DeadlineKey, Event] = field(default_factory=Deadlines)

    def write(
        self,
        transaction: Transaction,
        call: Call | None = None,
        response: Struct | None = None,
        *,
        only_alone: bool = False,
    ) -> Write[TransactionRecord]:
        """Store a new state of an id, then answer."""
        answers = () if call is None or response is None else (Answer(call, response),)
        record = TransactionRecord(transaction.transactional_id, transaction)
        return Write(transaction.transactional_id, (record,), answers, only_alone=only_alone)

    def watch_timeout(self, transaction: Transaction, now: Moment) -> None:
        """Look at an open transaction when its time is over."""
        left_ms = transaction.start_ms + transaction.timeout_ms - now.wall_ms
        # A host's clock that was set back must not keep a transaction open for longer than its time.
        delay_ms = min(max(left_ms, 0), transaction.timeout_ms)
        self.watch_timeout_until(transaction.transactional_id, now.monotonic_ms + delay_ms)

    def watch_timeout_until(self, transactional_id: str, due_ms: int) -> None:
        """The same, at `due_ms` by the monotonic clock."""
        self.deadlines.set(("timeout", transactional_id), due_ms, TimeoutDue(transactional_id))

    def end_soon(self, transactional_id: str, due_ms: int = 0) -> None:
        """Have the markers of a decided transaction written, at `due_ms` by the monotonic clock."""
        self.deadlines.set(("end", transactional_id), due_ms, EndDue(transactional_id))
