"""The tier as Spark and connectors read it: manifest, ranged reads, no broker code and no broker's load.

    reader = TierReader(open_store(url))
    manifest = reader.manifest(topic_id, partition)
    for segment in reader.segments(manifest, start, end):        # can be pickled and sent to a worker
        for piece in reader.read(segment):                       # whole batches
            ...

or `read_range`, which also goes on when retention or compaction replaces objects meanwhile. Batches are raw: the reader
drops records outside of [start, end), control batches, and those of aborted transactions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from appliance.base.clock import SystemClock
from appliance.base.object_store import (
    ETagMismatch,
    ObjectNotFound,
    ObjectStore,
    RangeNotSatisfiable,
    StoreUnavailable,
)
from appliance.tiering.batch_range import wanted_batches
from appliance.tiering.layout import AbortedTransaction, CorruptObject
from appliance.tiering.manifest import Manifest, SegmentItem
from appliance.tiering.names import partition_folder
from appliance.tiering.tier_cache import TierCache, TierObject

READ_BYTES = 8 << 20
"""How much one ranged GET asks for."""
ATTEMPTS_MAX = 6
PAUSE_S = 0.25
"""Before the second attempt; doubled with each more."""
RELOADS_MAX = 10
"""How often in a row `read_range` reads the manifest again without getting on."""

_NO_LIMIT = 1 << 62
_Result = TypeVar("_Result")


class TierDataLoss(Exception):
    """Offsets that were asked for are not in the tier any more: retention or DeleteRecords took them."""

    def __init__(self, offset: int, start_offset: int) -> None:
        super().__init__(f"offset {offset} is gone: the log starts at {start_offset}")
        self.offset = offset
        self.start_offset = start_offset


class TierNotCovering(Exception):
    """Offsets that were asked for are not in the tier: not yet, or something is wrong with it."""


@dataclass(frozen=True, slots=True)
class TierSegment:
    """Offsets [start, end) of one object. Can be pickled."""

    topic_id: uuid.UUID
    partition: int
    start: int
    end: int
    item: SegmentItem

    @property
    def object_name(self) -> str:
        """The full name of the object in the store."""
        return partition_folder(self.topic_id, self.partition) + self.item.name

    @property
    def data_bytes(self) -> int:
        """Size of the object's batches in bytes, also of those outside of [start, end)."""
        return self.item.data_length


@dataclass(frozen=True, slots=True)
class TierBatches:
    """Whole batches, and what a read_committed reader must know of them."""

    records: memoryview
    next_offset: int
    """Behind the last batch: where to go on."""
    aborted: tuple[AbortedTransaction, ...]
    """Aborted transactions that overlap the range that is being read in this object."""


class TierReader:
    """Reads of one process. Not for several threads at once; make one for each."""

    def __init__(self, store: ObjectStore, *, read_bytes: int = READ_BYTES) -> None:
        self._store = store
        self._read_bytes = read_bytes
        self._tier = TierCache(store, SystemClock(), max_age_ms=0)

    def manifest(self, topic_id: uuid.UUID, partition: int) -> Manifest | None:
        """The manifest as it is now; None when nothing was ever tiered.

        Raises: ObjectStoreError, CorruptManifest.
        """
        return _patiently(lambda: self._tier.manifest(topic_id, partition, again=True))

    def segments(self, manifest: Manifest, start: int, end: int) -> list[TierSegment]:
        """What covers [start, end), cut to it, as far as the tier goes; ranges without records are left out.

        Raises:
            TierDataLoss: `start` lies below the log's start.
            ObjectStoreError, CorruptManifest: a page cannot be read.
        """
        if start < manifest.start_offset and start < end:
            raise TierDataLoss(start, manifest.start_offset)
        return _patiently(lambda: list(self._segments(manifest, start, end)))

    def _segments(self, manifest: Manifest, start: int, end: int) -> Iterator[TierSegment]:
        for item in self._tier.leaves(manifest, start):
            if item.start >= end:
                return
            if isinstance(item, SegmentItem):
                low, high = max(item.start, start), min(item.end, end)
                yield TierSegment(manifest.topic_id, manifest.partition, low, high, item)

    def read(self, segment: TierSegment, start: int | None = None, end: int | None = None) -> Iterator[TierBatches]:
        """Whole batches with offsets in [start, end) of a segment, some MiB at a time.

        Raises:
            ObjectNotFound, ETagMismatch: the object was let go of; read the manifest again (`read_range` does).
            ObjectStoreError, CorruptObject, CorruptBatch.
        """
        low = segment.start if start is None else max(start, segment.start)
        high = segment.end if end is None else min(end, segment.end)
        source = self._object(segment)
        aborted = tuple(source.tail.aborted_between(low, high))
        position, data_length = source.tail.position_of(low), source.tail.footer.data_length
        length = self._read_bytes
        while position < data_length:
            length = min(length, data_length - position)
            piece = memoryview(self._get(source, position, length))
            wanted = wanted_batches(piece, low, high, _NO_LIMIT, min_one=True)
            if wanted.stop > wanted.begin:
                low = wanted.next_offset
                yield TierBatches(piece[wanted.begin : wanted.stop], low, aborted)
            if wanted.is_complete:
                return
            if wanted.stop == 0 and length == data_length - position:
                raise CorruptObject(f"{source.name}: {len(piece)} bytes at the end of the data are no batch")
            # A batch that the piece cuts off is read again, whole: to put megabytes together would copy all of them.
            position += wanted.stop
            length = self._read_bytes if wanted.stop else 2 * length

    def read_range(self, topic_id: uuid.UUID, partition: int, start: int, end: int) -> Iterator[TierBatches]:
        """Whole batches with offsets in [start, end), through however many objects, also while they are replaced.

        Raises:
            TierDataLoss: retention was faster. TierNotCovering: the tier does not reach to `end`.
            ObjectStoreError, CorruptManifest, CorruptObject, CorruptBatch.
        """
        cursor, reloads = start, 0
        while cursor < end:
            manifest = self.manifest(topic_id, partition)
            if manifest is None or manifest.end_offset < end:
                known = "nothing" if manifest is None else f"offsets up to {manifest.end_offset}"
                raise TierNotCovering(f"the tier holds {known}, {end} was asked for")
            reloads += 1
            try:
                for segment in self.segments(manifest, cursor, end):
                    for batches in self.read(segment):
                        yield batches
                        cursor, reloads = batches.next_offset, 0
                    cursor = max(cursor, segment.end)
                return
            except (ObjectNotFound, ETagMismatch) as error:
                if reloads > RELOADS_MAX:
                    raise TierNotCovering(f"offset {cursor} is listed, but its object is not there: {error}") from error

    def aborted(self, segment: TierSegment) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that overlap the segment. Raises as `read`."""
        return tuple(self._object(segment).tail.aborted_between(segment.start, segment.end))

    def _object(self, segment: TierSegment) -> TierObject:
        try:
            return _patiently(lambda: self._tier.object_of(segment.object_name, segment.item))
        except RangeNotSatisfiable as error:
            raise ETagMismatch(f"{segment.object_name}: is another object now") from error

    def _get(self, source: TierObject, position: int, length: int) -> bytes:
        stored = _patiently(lambda: self._store.get(source.name, start=position, length=length, etag=source.etag))
        return stored.data


def _patiently(action: Callable[[], _Result]) -> _Result:
    """Try again while the store does not answer, some times. Raises: StoreUnavailable, and what `action` raises."""
    attempt = 1
    while True:
        try:
            return action()
        except StoreUnavailable:
            if attempt == ATTEMPTS_MAX:
                raise
            time.sleep(PAUSE_S * 2 ** (attempt - 1))
            attempt += 1
