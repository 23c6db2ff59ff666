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

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.log.indexes import AbortedTransaction
from appliance.log.producer_snapshot import SnapshotEntry
from appliance.records.batch import TRANSACTIONAL_MASK, BatchHeader
from appliance.records.control import EndTransactionMarker

REMEMBERED_BATCHES = 5
PRODUCERS_MAX = 100_000
"""Of one partition, unless its broker is configured otherwise."""
LOOKED_AT_FOR_ROOM = 1_000
FORGOTTEN_FOR_ROOM = 100
_SEQUENCE_MASK = 0x7FFFFFFF


RememberedBatch = tuple[int, int, int, int, int]
"""Base sequence, last sequence, base offset, last offset, timestamp. Plain, because one is made per append."""


Producer = tuple[int, int, int, int, int, tuple[RememberedBatch, ...]]
"""The fields of a ProducerEntry. Plain as well, for the same reason."""


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


_NO_BATCH: RememberedBatch = (-1, -1, -1, -1, -1)


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_completed", "_ongoing", "_producers", "limit", "undo")

    def __init__(self, limit: int = PRODUCERS_MAX) -> None:
        self.limit = limit
        """So many producers are remembered; for a new one beyond it, idle ones are forgotten."""
        self._producers: dict[int, Producer] = {}
        self.undo: list[tuple[int, Producer | None]] = []
        """What entries were before the updates that are not written yet. The log clears it after each write."""
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction, in offset order, and its producer."""
        self._completed: list[CompletedTransaction] = []
        """Ended, but the marker is not below the high watermark yet: not stable for readers."""

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def entries(self) -> dict[int, ProducerEntry]:
        """All producers by id; made anew for each caller."""
        return {producer_id: ProducerEntry(*producer) for producer_id, producer in self._producers.items()}

    def copy(self) -> dict[int, Producer]:
        """The producers as they are now, for `snapshot_of`."""
        return dict(self._producers)

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """Whether a client's batch may be appended: None if so, else the code to answer, or the batch it repeats.

        Batches without a producer id need not be asked about. Costs one dict lookup for a batch in sequence.
        """
        entry = self._producers.get(header[9])
        if entry is None:
            return None
        epoch, sequence = header[10], header[11]
        if epoch == entry[0]:
            last_sequence = entry[1]
            if sequence == last_sequence + 1:
                return None
            if sequence < 0:
                # A marker, or offsets that a coordinator writes for a transaction.
                return None
            repeated = _repeated(entry[5], header)
            if repeated is not None:
                return repeated
            if sequence == 0 and last_sequence == _SEQUENCE_MASK:
                return None
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if epoch < entry[0]:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return None if sequence <= 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note a data batch that is appended at `base_offset`. It has been checked, or another leader checked it."""
        # This runs for each batch of an idempotent producer, so for most. The fields are those of BatchHeader.
        producer_id, epoch, sequence, last_offset_delta = header[9], header[10], header[11], header[6]
        producers = self._producers
        known = producers.get(producer_id)
        self.undo.append((producer_id, known))
        last_sequence = (sequence + last_offset_delta) & _SEQUENCE_MASK
        batch = (sequence, last_sequence, base_offset, base_offset + last_offset_delta, now_ms)
        batches: tuple[RememberedBatch, ...]
        if known is None:
            if len(producers) >= self.limit:
                self._make_room()
            first, coordinator_epoch, batches = -1, -1, (batch,)
        else:
            known_epoch, _, _, first, coordinator_epoch, batches = known
            if epoch != known_epoch:
                batches = (batch,)
            elif len(batches) < REMEMBERED_BATCHES:
                batches = (*batches, batch)
            else:
                _, second, third, fourth, fifth = batches
                batches = (second, third, fourth, fifth, batch)
        if header[5] & TRANSACTIONAL_MASK and first < 0:
            first = base_offset
            self._ongoing[base_offset] = producer_id
        producers[producer_id] = (epoch, last_sequence, now_ms, first, coordinator_epoch, batches)

    def end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        """Note a marker that is appended at `offset`; returns what belongs into the transaction index."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        known = self._producers.get(producer_id)
        self.undo.append((producer_id, known))
        first, last_sequence = -1, -1
        batches: tuple[RememberedBatch, ...] = ()
        if known is None and len(self._producers) >= self.limit:
            self._make_room()
        if known is not None:
            first = known[3]
            # With a raised epoch (by the coordinator) the next batch begins at sequence 0.
            if known[0] == epoch:
                last_sequence, batches = known[1], known[5]
        self._producers[producer_id] = (epoch, last_sequence, now_ms, -1, marker.coordinator_epoch, batches)
        if first < 0:
            return None
        self._ongoing.pop(first, None)
        self._completed.append(CompletedTransaction(producer_id, first, offset, marker.is_commit))
        if marker.is_commit:
            return None
        stable = min(self._ongoing, default=offset + 1)
        return AbortedTransaction(producer_id, first, offset, min(stable, offset + 1))

    def entry_of(self, producer_id: int) -> ProducerEntry | None:
        """One producer; None when it is not known."""
        known = self._producers.get(producer_id)
        return None if known is None else ProducerEntry(*known)

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """Of the newest marker; a marker with a lower one is a zombie's. -1: no marker was seen."""
        known = self._producers.get(producer_id)
        return -1 if known is None else known[4]

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
        for producer_id, known in reversed(self.undo):
            if known is None:
                self._producers.pop(producer_id, None)
            else:
                self._producers[producer_id] = known
        self.undo.clear()
        self._completed = [ended for ended in self._completed if ended.last_offset < end_offset]
        self._ongoing = _ongoing_in(self._producers)

    def were_active(self, producer_ids: Iterable[int], now_ms: int) -> None:
        """These producers have appended, nobody knows when; from now on it counts as idle."""
        for producer_id in producer_ids:
            known = self._producers.get(producer_id)
            if known is not None:
                self._producers[producer_id] = (*known[:2], now_ms, *known[3:])

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for `producer.id.expiration.ms` and have no open transaction; how many."""
        return self._forget(now_ms - expiration_ms)

    def forget_idle(self) -> int:
        """Forget all producers without an open transaction: what is known of them cannot be trusted."""
        return self._forget(None)

    def _forget(self, idle_since_ms: int | None) -> int:
        forgotten = [
            producer_id
            for producer_id, (_, _, timestamp, first, _, _) in self._producers.items()
            if first < 0 and (idle_since_ms is None or timestamp <= idle_since_ms)
        ]
        for producer_id in forgotten:
            del self._producers[producer_id]
        return len(forgotten)

    def _make_room(self) -> None:
        """Forget the idlest of those that were looked at longest ago; the others go to the end of the line.

        A forgotten producer may begin anywhere, as if its records were gone. One with an open transaction stays.
        """
        producers = self._producers
        looked_at = list(islice(producers.items(), LOOKED_AT_FOR_ROOM))
        looked_at.sort(key=lambda item: item[1][2])
        room = max(1, min(FORGOTTEN_FOR_ROOM, len(looked_at) // 10))
        for producer_id, producer in looked_at:
            del producers[producer_id]
            if producer[3] >= 0 or not room:
                producers[producer_id] = producer
            else:
                room -= 1

    def clear(self) -> None:
        self._producers.clear()
        self.undo.clear()
        self._ongoing = {}
        self._completed = []

    def load(self, snapshot: list[SnapshotEntry]) -> None:
        """Begin with what a snapshot says."""
        self.clear()
        self.adopt(snapshot)

    def adopt(self, snapshot: list[SnapshotEntry]) -> None:
        """Add those producers of a snapshot that are not known: their batches are gone from the log."""
        for saved in snapshot:
            if saved.producer_id in self._producers:
                continue
            batches: tuple[RememberedBatch, ...] = ()
            if saved.last_offset >= 0:
                base_sequence = (saved.last_sequence - saved.offset_delta) & _SEQUENCE_MASK
                base_offset = saved.last_offset - saved.offset_delta
                batches = ((base_sequence, saved.last_sequence, base_offset, saved.last_offset, saved.timestamp),)
            self._producers[saved.producer_id] = (
                saved.epoch,
                saved.last_sequence,
                saved.timestamp,
                saved.transaction_first_offset,
                saved.coordinator_epoch,
                batches,
            )
        self._ongoing = _ongoing_in(self._producers)


def _repeated(batches: tuple[RememberedBatch, ...], header: BatchHeader) -> Duplicate | None:
    base_sequence, last_sequence = header.base_sequence, header.last_sequence
    for first, last, base_offset, last_offset, timestamp in batches:
        if first == base_sequence and last == last_sequence:
            return Duplicate(base_offset, last_offset, timestamp)
    return None


def _ongoing_in(producers: dict[int, Producer]) -> dict[int, int]:
    pairs = [(producer[3], producer_id) for producer_id, producer in producers.items()]
    return {first: producer_id for first, producer_id in sorted(pairs) if first >= 0}


def snapshot_of(producers: dict[int, Producer]) -> list[SnapshotEntry]:
    """What `ProducerState.copy` returned, as a snapshot file holds it."""
    saved = []
    for producer_id, (epoch, last_sequence, timestamp, first, coordinator_epoch, batches) in producers.items():
        _, _, base_offset, last_offset, _ = batches[-1] if batches else _NO_BATCH
        saved.append(
            SnapshotEntry(
                producer_id,
                epoch,
                last_sequence,
                last_offset,
                last_offset - base_offset,
                timestamp,
                coordinator_epoch,
                first,
            )
        )
    return saved
