"""One closed segment on its way into the object store: read, indexed, wrapped and sent, in a helper thread."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from appliance.records.batch import CorruptBatch, split_batches
from appliance.tiering.body import BodyCancelled, FileBody, read_exactly
from appliance.tiering.events import Event, SegmentUploaded, UploadFailed, UploadSegment, UploadUndecided
from appliance.tiering.layout import (
    AbortedTransaction,
    CorruptObject,
    DecidedTransaction,
    EpochEntry,
    SegmentTail,
    encode_tail,
)
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.scan import OpenTransaction, SegmentScan, find_markers, scan_segment
from appliance.tiering.store_calls import StoreCalls

SCAN_PAUSE_S = 0.000_1
"""Slept before each piece of a scan, so that the event loop's thread gets the interpreter if it wants it."""
MARKER_SEARCH_BYTES = 1 << 20
"""How much is read at once when looking for markers behind a segment."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A segment's file, up to what was written when the upload was prepared."""

    path: Path
    size_bytes: int
    inode: int = 0
    """Of a file that compaction may replace by another of that name; 0 if none does."""


@dataclass(frozen=True, slots=True)
class NextSegment:
    """The closed segment behind the one that goes up."""

    file: LogFile
    start: int
    open_transactions: dict[int, OpenTransaction]


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """Everything an upload needs of the log, taken on the thread that owns the log."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    file: LogFile
    following: tuple[LogFile, ...]
    """The segments behind it, in order: markers of its transactions may lie there."""
    open_transactions: dict[int, OpenTransaction]
    """By producer id, at the segment's base offset."""
    producers: bytes
    """The producer snapshot at the segment's end; empty when there is none."""
    epochs: tuple[EpochEntry, ...]
    index_interval_bytes: int
    created_ms: int
    is_compacted: bool = False
    """Whether records and markers may be missing."""
    open_at_end: dict[int, OpenTransaction] | None = None
    """Of a compacted log, if nothing above the segment is in the tier: the transactions that are open at its end."""
    next_segment: NextSegment | None = None
    """What will go up next, if it is closed already and nobody rewrites it."""


class ScanAhead(threading.Thread):
    """Scans the next segment while this one is sent."""

    def __init__(self, segment: NextSegment, index_interval_bytes: int) -> None:
        super().__init__(name="tier-scan-ahead", daemon=True)
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._scan: SegmentScan | None = None
        self.start()

    def run(self) -> None:
        segment = self._segment
        # What cannot be scanned now is scanned, and told, when it goes up.
        with contextlib.suppress(OSError, CorruptObject, CorruptBatch), opened(segment.file) as descriptor:
            self._scan = scan_segment(
                paced_reader(descriptor),
                segment.file.size_bytes,
                segment.start,
                listed_from=segment.start,
                index_interval_bytes=self._index_interval_bytes,
                open_transactions=segment.open_transactions,
            )

    def take(self, segment: NextSegment, listed_from: int) -> SegmentScan | None:
        """The scan, if it is that of this segment. Waits for its end."""
        if segment != self._segment or listed_from != segment.start:
            return None
        self.join()
        return self._scan


class SegmentUpload:
    """An upload under one name. May be attempted again and again: the bytes stay the same."""

    def __init__(
        self, calls: StoreCalls, request: UploadSegment, source: SegmentSource, scanned: ScanAhead | None = None
    ) -> None:
        """`scanned` may be the scan of this segment that began with the upload of the one before."""
        self._scanned = scanned
        self.ahead: ScanAhead | None = None
        """The scan of the segment behind this one, once this one is being sent."""
        self._calls = calls
        self._request = request
        self._name = request.name
        self._listed_from = request.listed_from
        self._source = source
        self._built: tuple[SegmentScan, bytes] | None = None

    @property
    def size_bytes(self) -> int:
        return self._source.file.size_bytes

    def attempt(self, cancelled: threading.Event) -> Event:
        """Scan the segment unless that is done, and send it. Blocks; stops soon after `cancelled` is set."""
        try:
            with opened(self._source.file) as descriptor:
                if self._built is None:
                    self._built = self._build(descriptor)
                scan, tail = self._built
                listed = self._request.listed
                if listed is not None and _is_same(listed, scan, self._source.file.size_bytes):
                    return SegmentUploaded(listed._replace(cleaned=self._request.cleaned))
                # The scan's checksum, carried on over the tail: what the store gets is what was scanned, or refused.
                checksum = crc32c(tail, scan.data_crc32c)
                body = FileBody(descriptor, self._source.file.size_bytes, tail, cancelled, checksum)
                if self.ahead is None and self._source.next_segment is not None:
                    self.ahead = ScanAhead(self._source.next_segment, self._source.index_interval_bytes)
                failure = self._calls.create_or_compare(str(self._name), body, tail)
        except BodyCancelled as error:
            return UploadUndecided(str(error))
        except (OSError, CorruptObject, CorruptBatch) as error:
            return UploadFailed(f"{self._source.file.path.name}: {error}")
        if failure is not None:
            return failure
        return SegmentUploaded(
            SegmentItem(
                start=self._listed_from,
                end=self._name.end,
                name=str(self._name),
                size=body.size,
                tail=len(tail),
                data_crc32c=scan.data_crc32c,
                max_timestamp=scan.max_timestamp,
                records=scan.listed_records,
                cleaned=self._request.cleaned,
            )
        )

    def _build(self, descriptor: int) -> tuple[SegmentScan, bytes]:
        """Raises: OSError, CorruptObject, CorruptBatch."""
        source, name = self._source, self._name
        scanned, self._scanned = self._scanned, None
        scan = None
        if scanned is not None:
            mine = NextSegment(source.file, name.start, source.open_transactions)
            scan = scanned.take(mine, self._listed_from)
        scan = scan or scan_segment(
            paced_reader(descriptor),
            source.file.size_bytes,
            name.start,
            listed_from=self._listed_from,
            index_interval_bytes=source.index_interval_bytes,
            open_transactions=source.open_transactions if not source.is_compacted else {},
        )
        footer = scan.footer(
            source.topic, source.topic_id, source.partition, name, source.file.size_bytes, source.created_ms
        )
        aborted: Sequence[AbortedTransaction] = ()
        decided: Sequence[DecidedTransaction] = ()
        if source.is_compacted:
            at_end = source.open_at_end or {}
            wanted = {**scan.open, **at_end}
            found = find_markers(_batches_of(source.following), wanted, all_are_there=False)
            aborted, decided = found[0], [one for one in found[1] if one.producer_id in at_end]
        elif scan.open:
            aborted, decided = find_markers(_batches_of(source.following), scan.open)
        tail = SegmentTail(
            footer,
            tuple(scan.offset_index),
            tuple(scan.time_index),
            (*scan.aborted, *aborted),
            tuple(decided),
            source.producers,
            source.epochs,
        )
        return scan, encode_tail(tail)


def paced_reader(descriptor: int) -> Callable[[int, int], bytes]:
    """Reads for a scan, with a little pause before each."""

    def read_at(position: int, length: int) -> bytes:
        time.sleep(SCAN_PAUSE_S)
        return read_exactly(descriptor, position, length)

    return read_at


def _is_same(listed: SegmentItem, scan: SegmentScan, size_bytes: int) -> bool:
    """Whether compaction found nothing to take away: the object that is listed will do."""
    return listed.data_crc32c == scan.data_crc32c and listed.data_length == size_bytes


@contextlib.contextmanager
def opened(file: LogFile) -> Iterator[int]:
    """A file descriptor of one's own to read from: the log may close or delete its file meanwhile.

    Raises: OSError, also where another file has taken the name.
    """
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if file.inode and os.fstat(descriptor).st_ino != file.inode:
            raise FileNotFoundError("it was compacted meanwhile")
        yield descriptor
    finally:
        os.close(descriptor)


def _batches_of(files: Sequence[LogFile]) -> Iterator[memoryview]:
    """Whole batches of several files, one after the other. Raises: OSError, CorruptBatch."""
    for file in files:
        with opened(file) as descriptor:
            position, wanted = 0, MARKER_SEARCH_BYTES
            while position < file.size_bytes:
                piece = read_exactly(descriptor, position, min(wanted, file.size_bytes - position))
                used = 0
                for batch in split_batches(piece):
                    used += len(batch)
                    yield batch
                if not used and len(piece) < wanted:
                    raise CorruptBatch(f"{file.path.name}: no whole batch at position {position}")
                # A batch larger than what was read: try with more.
                wanted = MARKER_SEARCH_BYTES if used else wanted * 2
                position += used
