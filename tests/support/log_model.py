"""What a log should be: a list of batches, from which everything else that a log knows follows by going through it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from appliance.log.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from appliance.log.partition_log import PartitionLog
from appliance.log.segment import Segment
from appliance.records.batch import check_batch, parse_header, split_batches
from appliance.records.control import ABORT
from appliance.records.reader import read_records

REMEMBERED = 5
LAST_SEQUENCE = 0x7FFFFFFF


class Row(NamedTuple):
    """A record that a reader finds."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(frozen=True)
class Batch:
    """One batch that was appended."""

    rows: tuple[Row, ...]
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: int | None = None
    """ABORT or COMMIT."""
    coordinator_epoch: int = -1

    @property
    def base_offset(self) -> int:
        return self.rows[0].offset

    @property
    def last_offset(self) -> int:
        return self.rows[-1].offset

    @property
    def next_offset(self) -> int:
        return self.rows[-1].offset + 1

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + len(self.rows) - 1) & LAST_SEQUENCE


@dataclass
class Producer:
    """One producer, by Kafka's rules."""

    epoch: int
    last_sequence: int = -1
    transaction_first_offset: int = -1
    coordinator_epoch: int = -1
    batches: list[Batch] = field(default_factory=list)
    """The newest of this epoch, old to new."""


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int


@dataclass
class Known:
    """What follows from the batches."""

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, marker) of every transaction that ended."""

    @property
    def open_since(self) -> list[int]:
        firsts = [producer.transaction_first_offset for producer in self.producers.values()]
        return sorted(first for first in firsts if first >= 0)


class Model:
    """All that was appended and not cut away, also what is deleted or compacted."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start = self.end = 0
        self.gone: set[int] = set()
        """Offsets that compaction has taken."""
        self.absent: set[int] = set()
        """Base offsets of batches of which compaction has left nothing."""

    def append(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end = batch.next_offset

    def cut(self, offset: int) -> None:
        """As `truncate_to`: a batch that holds the offset goes whole."""
        if offset >= self.end:
            return
        kept = [batch for batch in self.batches if batch.next_offset <= offset]
        cut = [batch for batch in self.batches[len(kept) : len(kept) + 1] if batch.base_offset not in self.absent]
        self.batches = kept
        self.end = min(offset, cut[0].base_offset) if cut else offset
        self.start = min(self.start, self.end)
        self.gone = {each for each in self.gone if each < self.end}
        self.absent = {each for each in self.absent if each < self.end}

    def begin_at(self, offset: int) -> None:
        self.batches, self.gone, self.absent = [], set(), set()
        self.start = self.end = offset

    def raise_start(self, offset: int) -> None:
        self.start = max(self.start, offset)

    @property
    def rows(self) -> list[Row]:
        """What a reader finds, markers too."""
        return [
            row
            for batch in self.batches
            for row in batch.rows
            if row.offset >= self.start and row.offset not in self.gone
        ]

    def known(self) -> Known:
        """Go through all batches from the first."""
        known = Known()
        for batch in self.batches:
            if batch.producer_id < 0:
                continue
            before = known.producers.get(batch.producer_id)
            now = Producer(batch.producer_epoch)
            if before is not None:
                now.transaction_first_offset = before.transaction_first_offset
                now.coordinator_epoch = before.coordinator_epoch
                if before.epoch == batch.producer_epoch:
                    now.last_sequence, now.batches = before.last_sequence, before.batches
            if batch.marker is not None:
                first, now.transaction_first_offset = now.transaction_first_offset, -1
                now.coordinator_epoch = batch.coordinator_epoch
                if first >= 0:
                    known.ended.append((first, batch.base_offset))
                    if batch.marker == ABORT:
                        known.aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
            else:
                now.last_sequence = batch.last_sequence
                now.batches = [*now.batches, batch][-REMEMBERED:]
                if batch.transactional and now.transaction_first_offset < 0:
                    now.transaction_first_offset = batch.base_offset
            known.producers[batch.producer_id] = now
        return known

    def stable_offset(self, high_watermark: int) -> int:
        """The last stable offset, when everything is known."""
        known = self.known()
        undecided = [first for first, marker in known.ended if marker >= high_watermark]
        return min([*known.open_since, *undecided, high_watermark])

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of what has not been deleted."""
        found: list[tuple[int, int]] = []
        for batch in self.batches:
            if batch.next_offset <= self.start:
                continue
            if not found or found[-1][0] != batch.leader_epoch:
                found.append((batch.leader_epoch, max(batch.base_offset, self.start)))
        return found


# What the log says


def rows_by_slices(log: PartitionLog, start: int, max_bytes: int) -> list[Row]:
    """As consumers read: slice by slice, each batch with its crc checked."""
    offset, found = start, []
    while (piece := log.read(offset, max_bytes, log.log_end_offset)) is not None:
        data = piece.read()
        assert len(data) == piece.length
        for batch in split_batches(data):
            header = check_batch(batch)
            assert header.next_offset > offset, "a slice begins with the batch that holds the offset"
            found += [Row(*record[:4]) for record in rows_of(batch) if record.offset >= start]
            offset = header.next_offset
    return found


def rows_of(batch: bytes | bytearray | memoryview) -> Iterable[Row]:
    for record in read_records(batch):
        yield Row(record.offset, record.key, record.value, record.timestamp)


def check_indexes(segment: Segment) -> None:
    """The indexes of a segment, in memory and on disk, against a scan of it."""
    ends: dict[int, int] = {}
    latest_at: dict[int, int] = {}
    latest, position = -1, 0
    data = segment.disk.pread(segment.open(), segment.size_bytes + 1, 0)
    assert len(data) == segment.size_bytes
    while position < len(data):
        header = parse_header(data, position)
        ends[header.last_offset - segment.base_offset] = position
        if header.max_timestamp > latest:
            latest = latest_at[header.last_offset - segment.base_offset] = header.max_timestamp
        position += header.size_in_bytes
    assert position == len(data)
    check_entries(segment.index, segment.time_index, ends, latest_at)
    assert segment.max_timestamp == latest
    if segment.is_active or segment.has_unstored_indexes:
        return
    if len(segment.time_index):
        assert segment.time_index.timestamps[-1] == latest, "the last entry of a closed segment has the newest time"
    content, time_content = (read_whole(segment, suffix) for suffix in ("index", "timeindex"))
    assert len(content) % OFFSET_ENTRY_BYTES == len(time_content) % TIME_ENTRY_BYTES == 0
    check_entries(OffsetIndex.from_bytes(content, len(data)), TimeIndex.from_bytes(time_content), ends, latest_at)


def check_entries(index: OffsetIndex, times: TimeIndex, ends: dict[int, int], latest_at: dict[int, int]) -> None:
    entries = list(zip(index.offsets, index.positions, strict=True))
    assert entries == sorted(set(entries)), "the entries of an offset index rise"
    for offset, position in entries:
        assert ends.get(offset) == position, f"no batch that ends with {offset} stands at {position}"
    points = list(zip(times.offsets, times.timestamps, strict=True))
    for before, after in pairwise(points):
        assert before[0] < after[0] and before[1] < after[1], "a time index rises"
    for offset, timestamp in points:
        assert latest_at.get(offset) == timestamp, f"{timestamp} is not the newest time up to {offset}"


def read_whole(segment: Segment, suffix: str) -> bytes:
    path = segment.path.with_suffix(f".{suffix}")
    if not segment.disk.exists(path):
        return b""
    descriptor = segment.disk.open(path, 0)
    try:
        return segment.disk.pread(descriptor, segment.disk.size(descriptor), 0)
    finally:
        segment.disk.close(descriptor)
