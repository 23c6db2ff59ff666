"""Which batches of transactions may go when a log is cleaned. Pure.

- Records of an aborted transaction go at once.
- A marker may go when a round has seen no batch of its transaction any more; then it is kept for delete.retention.ms
  longer, as a tombstone is (KIP-534).
- An abort stays in the transaction index of the segment that has its marker as long as this round has seen a batch of
  it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from appliance.log.indexes import AbortedTransaction
from appliance.records.batch import BatchHeader
from appliance.records.control import EndTransactionMarker


class CleanedTransactions:
    """Follows the batches of one round in offset order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: every aborted transaction that overlaps the part of the log that is read."""
        self._waiting = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTransaction] = {}
        """Those that are open at this offset, by producer id."""
        self._seen: set[int] = set()
        """Producers of open aborted transactions of which a batch was there."""
        self._committed: set[int] = set()
        """Producers of open transactions that will be committed, and of which a batch was there."""

    def data_batch(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        transaction = self._aborted.get(header.producer_id)
        if transaction is not None and transaction.last_offset > header.base_offset:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def control_batch(
        self, header: BatchHeader, marker: EndTransactionMarker | None, is_empty: bool
    ) -> tuple[bool, AbortedTransaction | None]:
        """Whether the batch is of no use any more, and what belongs into the transaction index for it.

        `marker` is None for other control records, which stay, and for a batch that was emptied already.
        """
        self._begin_up_to(header.last_offset)
        if is_empty:
            return True, None
        if marker is None:
            return False, None
        producer_id = header.producer_id
        if marker.is_commit:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches, None
        transaction = self._aborted.pop(producer_id, None)
        if transaction is None or producer_id not in self._seen:
            return True, None
        self._seen.discard(producer_id)
        return False, transaction

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, transaction = heapq.heappop(self._waiting)
            self._aborted.setdefault(transaction.producer_id, transaction)
