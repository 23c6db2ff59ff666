"""What the log says about transactional ids, and how each step changes it.

`StoredTransactions.replay` is the only method that writes, whether a record was committed just now or is read after a
failover. The steps (`begun`, `prepared`, ...) return the next state of one id; they check nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from appliance.transactions.states import TransactionState

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
EPOCH_MAX = 32_767
EXHAUSTED_EPOCH = EPOCH_MAX - 1
"""The last epoch a client sees: one more is kept for fencing it."""

TopicPartitionPair = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id as of its last record."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartitionPair] = frozenset()
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    """Whose epochs were used up, so that a repeated end of its last transaction is known."""
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the transaction that is being ended is complete."""
    client_version: int = 0
    """2: the producer gets a new epoch with each end (KIP-890)."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch before this one. Not in the log: it serves only a request that is repeated at once."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the next epoch needs a new producer id."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def is_rotating(self) -> bool:
        return self.next_producer_id != NO_PRODUCER_ID

    @property
    def for_the_producer(self) -> tuple[int, int]:
        """(producer id, epoch) with which its producer goes on once this transaction is ended."""
        return (self.next_producer_id, 0) if self.is_rotating else (self.producer_id, self.producer_epoch)

    def begun(self, added: Iterable[TopicPartitionPair], client_version: int, now_ms: int) -> Transaction:
        """Ongoing, with more partitions."""
        is_first = self.state is not TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(added),
            start_ms=now_ms if is_first else self.start_ms,
            update_ms=now_ms,
            client_version=client_version if is_first else max(client_version, self.client_version),
        )

    def prepared(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int, without_partitions: bool
    ) -> Transaction:
        """Its end is decided. With version 2 the markers carry the next epoch, so a late batch comes from a zombie."""
        bumps = client_version >= 2
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            last_epoch=self.producer_epoch if bumps else self.last_epoch,
            next_producer_id=next_producer_id,
            client_version=client_version,
            start_ms=now_ms if without_partitions else self.start_ms,
            update_ms=now_ms,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Aborted for its producer, which the raised epoch shuts out."""
        return replace(
            self,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
            last_epoch=NO_EPOCH,
            client_version=0,
            update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        commit = self.state is TransactionState.PREPARE_COMMIT
        producer_id, epoch = self.for_the_producer
        return replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            producer_id=producer_id,
            producer_epoch=epoch,
            previous_producer_id=self.producer_id if self.is_rotating else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            update_ms=now_ms,
        )

    def started_anew(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins (again) under this id."""
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            previous_producer_id=self.producer_id if producer_id != self.producer_id else self.previous_producer_id,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            update_ms=now_ms,
        )


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The newest state of a transactional id, or its end (None)."""

    transactional_id: str
    transaction: Transaction | None


class StoredTransactions:
    """All transactional ids of one partition of `__transaction_state`, as the log has them."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}

    def replay(self, record: TransactionRecord) -> None:
        """Take over a committed record."""
        if record.transaction is None:
            self.by_id.pop(record.transactional_id, None)
        else:
            self.by_id[record.transactional_id] = record.transaction

    def __eq__(self, other: object) -> bool:
        return self.by_id == other.by_id if isinstance(other, StoredTransactions) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
