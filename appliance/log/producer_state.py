"""What the log knows of each idempotent or transactional producer (KIP-98, KIP-890).

- The last five batches of a producer are remembered: a repeated one is answered with its old offsets.
- A batch must follow the last one: sequence + 1, after 2^31 - 1 comes 0; a new epoch begins at 0.
- A producer that is not known (its records are gone, or it was idle too long) may begin anywhere.
- A transaction is open from its first batch to its marker. Below the first offset of the oldest open one, all is
  stable.

Entries are tuples that are replaced, never changed: a copy of the dict is a snapshot, and an undo list takes back what
a failed write had added.
"""

from __future__ import annotations

from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.log.indexes import AbortedTransaction
from appliance.log.producer_snapshot import SnapshotEntry
from appliance.records.batch import BatchHeader
from appliance.records.control import EndTransactionMarker

REMEMBERED_BATCHES = 5
_SEQUENCE_MASK = 0x7FFFFFFF


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """One producer. `batches` go from old to new; `last_sequence` is -1 in an epoch without a batch."""

    epoch: int
    last_sequence: int
    timestamp: int
    transaction_first_offset: int
    coordinator_epoch: int
    batches: tuple[RememberedBatch, ...]


class Duplicate(NamedTuple):
    """The batch is in the log already; answer with these."""

    base_offset: int
    last_offset: int
    timestamp: int
    """When it was appended; what a topic with LogAppendTime answers."""


class CompletedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    is_commit: bool


_new_tuple = tuple.__new__


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_completed", "_ongoing", "entries", "undo")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.undo: list[tuple[int, ProducerEntry | None]] = []
        """What entries were before the updates that are not written yet. The log clears it after each write."""
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction, in offset order, and its producer."""
        self._completed: list[CompletedTransaction] = []
        """Ended, but the marker is not below the high watermark yet: not stable for readers."""

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """Whether a client's batch may be appended: None if so, else the code to answer, or the batch it repeats.

        Batches without a producer id need not be asked about. Costs one dict lookup for a batch in sequence.
        """
        entry = self.entries.get(header[9])
        if entry is None:
            return None
        epoch, sequence = header[10], header[11]
        if epoch == entry[0]:
            last_sequence = entry[1]
            if sequence == last_sequence + 1:
                return None
            repeated = self._repeated(entry, header)
            if repeated is not None:
                return repeated
            if sequence == 0 and last_sequence == _SEQUENCE_MASK:
                return None
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch < entry[0]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return None if sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @staticmethod
    def _repeated(entry: ProducerEntry, header: BatchHeader) -> Duplicate | None:
        base_sequence, last_sequence = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
        return None

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note a data batch that is appended at `base_offset`. It has been checked, or another leader checked it."""
        producer_id, epoch, sequence, last_offset_delta = header[9], header[10], header[11], header[6]
        entry = self.entries.get(producer_id)
        self.undo.append((producer_id, entry))
        last_sequence = (sequence + last_offset_delta) & _SEQUENCE_MASK
        batch = _new_tuple(
            RememberedBatch, (sequence, last_sequence, base_offset, base_offset + last_offset_delta, now_ms)
        )
        if entry is None:
            first, coordinator_epoch = -1, -1
            batches: tuple[RememberedBatch, ...] = (batch,)
        else:
            first, coordinator_epoch = entry[3], entry[4]
            batches = (*entry[5][1 - REMEMBERED_BATCHES :], batch) if epoch == entry[0] else (batch,)
        if header[5] & 0x10 and first < 0:
            first = base_offset
            self._ongoing[base_offset] = producer_id
        self.entries[producer_id] = _new_tuple(
            ProducerEntry, (epoch, last_sequence, now_ms, first, coordinator_epoch, batches)
        )

    def end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Note a marker that is appended at `offset`; returns what belongs into the transaction index."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self.entries.get(producer_id)
        self.undo.append((producer_id, entry))
        first = -1 if entry is None else entry.transaction_first_offset
        if entry is not None and entry.epoch == epoch:
            last_sequence, batches = entry.last_sequence, entry.batches
        else:
            # The coordinator raised the epoch with the marker: the next batch begins at sequence 0.
            last_sequence, batches = -1, ()
        self.entries[producer_id] = ProducerEntry(epoch, last_sequence, now_ms, -1, marker.coordinator_epoch, batches)
        if first < 0:
            return None
        self._ongoing.pop(first, None)
        self._completed.append(CompletedTransaction(producer_id, first, offset, marker.is_commit))
        if marker.is_commit:
            return None
        stable = min(self._ongoing, default=offset + 1)
        return AbortedTransaction(producer_id, first, offset, min(stable, offset + 1))

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """Of the newest marker; a marker with a lower one is a zombie's. -1: no marker was seen."""
        entry = self.entries.get(producer_id)
        return -1 if entry is None else entry.coordinator_epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        if self._completed and self._completed[0].last_offset < high_watermark:
            self._completed = [ended for ended in self._completed if ended.last_offset >= high_watermark]
        if not self._ongoing and not self._completed:
            return None
        ongoing = min(self._ongoing) if self._ongoing else None
        completed = min((ended.first_offset for ended in self._completed), default=None)
        if ongoing is None or completed is None:
            return completed if ongoing is None else ongoing
        return min(ongoing, completed)

    @property
    def ongoing_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of each open transaction, oldest first."""
        return [(producer_id, first) for first, producer_id in sorted(self._ongoing.items())]

    def take_back(self, end_offset: int) -> None:
        """Undo the updates since the last write, which failed; the log ends at `end_offset` again."""
        for producer_id, entry in reversed(self.undo):
            if entry is None:
                self.entries.pop(producer_id, None)
            else:
                self.entries[producer_id] = entry
        self.undo.clear()
        self._completed = [ended for ended in self._completed if ended.last_offset < end_offset]
        self._ongoing = _ongoing_in(self.entries)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for `producer.id.expiration.ms` and have no open transaction; how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset < 0 and now_ms - entry.timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self.entries.clear()
        self.undo.clear()
        self._ongoing = {}
        self._completed = []

    def load(self, snapshot: list[SnapshotEntry]) -> None:
        """Begin with what a snapshot says."""
        self.clear()
        for saved in snapshot:
            batches: tuple[RememberedBatch, ...] = ()
            if saved.last_offset >= 0:
                base_sequence = (saved.last_sequence - saved.offset_delta) & _SEQUENCE_MASK
                base_offset = saved.last_offset - saved.offset_delta
                batches = (
                    RememberedBatch(
                        base_sequence, saved.last_sequence, base_offset, saved.last_offset, saved.timestamp
                    ),
                )
            self.entries[saved.producer_id] = ProducerEntry(
                saved.epoch,
                saved.last_sequence,
                saved.timestamp,
                saved.transaction_first_offset,
                saved.coordinator_epoch,
                batches,
            )
        self._ongoing = _ongoing_in(self.entries)


def _ongoing_in(entries: dict[int, ProducerEntry]) -> dict[int, int]:
    pairs = [(entry.transaction_first_offset, producer_id) for producer_id, entry in entries.items()]
    return {first: producer_id for first, producer_id in sorted(pairs) if first >= 0}


def snapshot_of(entries: dict[int, ProducerEntry]) -> list[SnapshotEntry]:
    """The entries, or a copy of them, as a snapshot holds them."""
    saved = []
    for producer_id, entry in entries.items():
        last = entry.batches[-1] if entry.batches else None
        saved.append(
            SnapshotEntry(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                last.last_offset if last else -1,
                last.last_offset - last.base_offset if last else 0,
                entry.timestamp,
                entry.coordinator_epoch,
                entry.transaction_first_offset,
            )
        )
    return saved
