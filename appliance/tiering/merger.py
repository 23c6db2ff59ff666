"""Neighbouring objects of the tier on their way into one: fetched, checked, indexed and sent, in a helper thread."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

from appliance.base.object_store import ObjectStoreError, StoreUnavailable
from appliance.records.batch import HEADER_BYTES, CorruptBatch, parse_header
from appliance.tiering.body import BodyCancelled, FileBody, read_exactly
from appliance.tiering.events import Event, MergeObjects, SegmentUploaded, UploadFailed, UploadUndecided
from appliance.tiering.layout import AbortedTransaction, CorruptObject, SegmentTail, encode_tail, parse_tail
from appliance.tiering.manifest import SegmentItem
from appliance.tiering.merge import object_of
from appliance.tiering.scan import scan_segment
from appliance.tiering.store_calls import StoreCalls
from appliance.tiering.uploader import paced_reader

READ_BYTES = 8 << 20
"""How much of an object is fetched with one request, and held in memory."""
FREE_DISK_FACTOR = 4
"""The disk must have so many times the room that a merge takes there for a while."""


class ObjectMerge:
    """A merge under one name. May be attempted again and again: the bytes stay the same."""

    ahead = None
    """A merge scans nothing ahead."""

    def __init__(
        self, calls: StoreCalls, request: MergeObjects, folder: Path, index_interval_bytes: int, created_ms: int
    ) -> None:
        """`folder`: on its disk the data is gathered, in a file without a name that ends with the merge."""
        self._calls = calls
        self._request = request
        self._folder = folder
        self._index_interval_bytes = index_interval_bytes
        self._created_ms = created_ms
        self._built: _Merged | None = None

    @property
    def size_bytes(self) -> int:
        return sum(item.size for item in self._request.items)

    def attempt(self, cancelled: threading.Event) -> Event:
        """Gather the data unless that is done, and send it. Blocks; stops soon after `cancelled` is set."""
        request = self._request
        try:
            merged = self._built or self._build(cancelled)
            self._built = merged
            checksum = crc32c(merged.tail, merged.data_crc32c)
            body = FileBody(merged.file.fileno(), merged.length, merged.tail, cancelled, checksum)
            failure = self._calls.create_or_compare(str(request.name), body, merged.tail)
        except (BodyCancelled, StoreUnavailable) as error:
            return UploadUndecided(str(error))
        except (OSError, ObjectStoreError, CorruptObject, CorruptBatch) as error:
            return UploadFailed(f"merging {len(request.items)} objects: {error}")
        if failure is not None:
            return failure
        # Whoever still sends it holds the file; else it ends here.
        self._built = None
        return SegmentUploaded(
            SegmentItem(
                start=request.items[0].start,
                end=request.name.end,
                name=str(request.name),
                size=body.size,
                tail=len(merged.tail),
                data_crc32c=merged.data_crc32c,
                max_timestamp=max(item.max_timestamp for item in request.items),
                records=sum(item.records for item in request.items),
            )
        )

    def _build(self, cancelled: threading.Event) -> _Merged:
        """Raises: OSError, ObjectStoreError, CorruptObject, CorruptBatch, BodyCancelled."""
        name = self._request.name
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize < self.size_bytes * FREE_DISK_FACTOR:
            raise OSError(f"less than {FREE_DISK_FACTOR} times {self.size_bytes} bytes are free in {self._folder}")
        merged = _Merged(self._folder)
        file = merged.file
        tails: list[SegmentTail] = []
        length = 0
        for item in self._request.items:
            tails.append(self._fetch(item, file, cancelled))
            end = file.tell()
            # The first object stays whole: what the list cuts off may be half of a batch.
            if length and object_of(item).start < item.start:
                end = _drop_head(file, length, end, tails[-1], item.start)
            length = end
        descriptor = file.fileno()
        scan = scan_segment(
            paced_reader(descriptor),
            length,
            name.start,
            listed_from=self._request.items[0].start,
            index_interval_bytes=self._index_interval_bytes,
            open_transactions={},
        )
        # What is known at its end is what the last of them knows at its own.
        last = tails[-1]
        of = last.footer
        tail = SegmentTail(
            scan.footer(of.topic, of.topic_id, of.partition, name, length, self._created_ms),
            tuple(scan.offset_index),
            tuple(scan.time_index),
            _union(tails),
            last.decided,
            last.producers,
            last.epochs,
        )
        merged.length, merged.data_crc32c, merged.tail = length, scan.data_crc32c, encode_tail(tail)
        return merged

    def _fetch(self, item: SegmentItem, file: BinaryIO, cancelled: threading.Event) -> SegmentTail:
        """Append an object's data to `file`, checked; returns its tail."""
        position, checksum, tail = 0, 0, bytearray()
        while position < item.size:
            if cancelled.is_set():
                raise BodyCancelled("the merge's deadline is over")
            piece = self._calls.read_object(item.name, position, min(READ_BYTES, item.size - position))
            data = piece[: max(0, item.data_length - position)]
            checksum = crc32c(data, checksum)
            _write_all(file, data)
            tail += piece[len(data) :]
            position += len(piece)
        if checksum != item.data_crc32c:
            raise CorruptObject(f"{item.name}: crc of the data differs from the manifest's")
        return parse_tail(bytes(tail), item.size)


class _Merged:
    """What is sent: the data in a file without a name, and the tail."""

    def __init__(self, folder: Path) -> None:
        """Raises: OSError."""
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        # An attempt whose deadline is over may still send it while the next one does.
        weakref.finalize(self, file.close)
        self.file = file
        self.length = 0
        self.data_crc32c = 0
        self.tail = b""


def _union(tails: Sequence[SegmentTail]) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions of all, each once, in the order of their markers."""
    entries = {entry for tail in tails for entry in tail.aborted}
    return tuple(sorted(entries, key=lambda entry: (entry.last_offset, entry.producer_id)))


def _drop_head(file: BinaryIO, begin: int, end: int, tail: SegmentTail, start: int) -> int:
    """Take the batches below offset `start` out of the object that lies at [begin, end); returns the new end.

    Another replica had rolled elsewhere, so an object holds again what the one before it holds; batches never differ.
    """
    descriptor = file.fileno()
    position = begin + tail.position_of(start)
    while position < end:
        header = parse_header(read_exactly(descriptor, position, HEADER_BYTES))
        if header.base_offset >= start:
            break
        if header.last_offset >= start:
            raise CorruptObject(f"offset {start} lies inside of a batch that begins at {header.base_offset}")
        position += header.size_in_bytes
    target = begin
    while position < end:
        piece = read_exactly(descriptor, position, min(READ_BYTES, end - position))
        os.pwrite(descriptor, piece, target)
        position += len(piece)
        target += len(piece)
    file.truncate(target)
    file.seek(target)
    return target


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
