"""Segments and objects of the tier, made by hand for tests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from appliance.records.builder import build_batch
from appliance.records.control import build_marker
from appliance.tiering.layout import Footer, SegmentTail, encode_tail
from appliance.tiering.names import SEGMENT, ObjectName
from appliance.tiering.scan import OpenTransaction, SegmentScan, scan_segment

TOPIC = "flights"
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def data_batch(
    base_offset: int,
    values: Sequence[bytes],
    *,
    timestamp: int = 1_000,
    producer_id: int = -1,
    transactional: bool = False,
) -> bytes:
    """One uncompressed batch; record n has the timestamp `timestamp` + n and the key `k<offset>`."""
    records = [(timestamp + n, b"k%d" % (base_offset + n), value, ()) for n, value in enumerate(values)]
    return build_batch(
        records,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        transactional=transactional,
    )


def marker_batch(offset: int, kind: int, producer_id: int, *, timestamp: int = 1_000) -> bytes:
    """The batch that ends a transaction, at `offset`."""
    batch = bytearray(build_marker(kind, 7, producer_id=producer_id, producer_epoch=0, now_ms=timestamp))
    batch[0:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def scan_bytes(
    data: bytes,
    base_offset: int,
    *,
    listed_from: int | None = None,
    index_interval_bytes: int = 0,
    open_transactions: dict[int, OpenTransaction] | None = None,
) -> SegmentScan:
    """A scan of a segment that is in memory."""
    return scan_segment(
        lambda position, length: data[position : position + length],
        len(data),
        base_offset,
        listed_from=base_offset if listed_from is None else listed_from,
        index_interval_bytes=index_interval_bytes,
        open_transactions=open_transactions or {},
    )


def tail_of(
    scan: SegmentScan, data: bytes, name: ObjectName, *, created_ms: int = 5_000, **more: object
) -> SegmentTail:
    """The tail of the object `name` over segment bytes that were scanned."""
    footer = Footer(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=0,
        start=name.start,
        end=name.end,
        epoch=name.epoch,
        seq=name.seq,
        data_length=len(data),
        data_crc32c=scan.data_crc32c,
        records=scan.records,
        batches=scan.batches,
        first_timestamp=scan.first_timestamp,
        max_timestamp=scan.max_timestamp,
        created_ms=created_ms,
    )
    return SegmentTail(footer, tuple(scan.offset_index), tuple(scan.time_index), tuple(scan.aborted), **more)  # type: ignore[arg-type]


def segment_object(data: bytes, start: int, end: int, *, epoch: int = 1, seq: int = 0) -> tuple[ObjectName, bytes, int]:
    """Name, body and tail length of a whole object."""
    name = ObjectName(SEGMENT, start, end, epoch, seq)
    tail = encode_tail(tail_of(scan_bytes(data, start), data, name))
    return name, data + tail, len(tail)
