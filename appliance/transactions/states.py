"""The states of a transactional id, numbered and named as in Kafka's `__transaction_state`.

```
Empty ──> Ongoing ──> PrepareCommit ──> CompleteCommit ──> Ongoing ...
   └───────┴────────> PrepareAbort  ──> CompleteAbort  ──> Ongoing ...
```
Empty, CompleteCommit and CompleteAbort go straight to PrepareAbort where a producer ends a transaction that it had no
partitions in (KIP-890).
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The value is the status byte of a record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Written by Kafka while an id expires; here only read."""
    PREPARE_EPOCH_FENCE = 7
    """Never written; listed because a client may filter by it."""

    @property
    def text(self) -> str:
        """As ListTransactions and DescribeTransactions say it."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_preparing(self) -> bool:
        """Decided, and its markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Nothing is open: the id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


STATES_BY_TEXT = {state.text: state for state in TransactionState}
