"""The short way of a fetch: one partition, no session, and there is something to give. Versions 4 to 16.

Requests of one connection resemble each other up to the offset: what stands before and behind it is compared as a
whole with the last request's. The answer's frame is prepared once; only the numbers, and where the records lie, are
new. Whatever is not ordinary (nothing to read, cold pages, another shape, an error) takes the long way of `fetch`.

```
 0  i32 size, i16 api_key, i16 api_version, i32 correlation_id
12  client id and all fields up to the partition's leader epoch
    i64 fetch offset, i32 last fetched epoch (from version 12), i64 log start (from 5), i32 partition's max bytes
    forgotten topics, rack, tags
```
"""

from __future__ import annotations

import struct
from typing import Any, cast

from appliance.authorizer.bindings import Operation
from appliance.base.disk import WouldWait
from appliance.base.errors import KafkaError
from appliance.log.reading import read_slice
from appliance.partition.fetch_sessions import FINAL_EPOCH
from appliance.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED
from appliance.server.access import short_way_is_open
from appliance.server.connection import Connection
from appliance.server.context import Broker, Partition
from appliance.server.dispatcher import RawHandler
from appliance.server.handlers.fetch_answer import TOPIC_IDS_SINCE, encode_with_ranges
from appliance.server.handlers.fetch_read import COPIED_UP_TO_BYTES, find_partition, range_of
from appliance.server.page_cache import CACHED_PAGES, is_cached, read_if_cached
from appliance.server.requests import Pending
from appliance.wire.codec import decode_from, decode_request_header
from appliance.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from appliance.wire.varint import encode_unsigned_varint

FIRST_VERSION, LAST_VERSION = 4, 16
FLEXIBLE_SINCE = 12
_BODY_AT = 12
_MARKS = (0x0123456789ABCDEF, 0x23456789ABCDEF01, 0x456789ABCDEF0123)
"""Stand for high watermark, last stable offset and log start in the prepared answer."""
_pack_marks = struct.Struct(">qqq").pack
MISSES_MAX = 8
"""So often a connection's requests may look different before nobody looks for a shape in them any more."""


class FetchShape:
    """What the requests of a connection have in common, and their answer."""

    __slots__ = (
        "current_leader_epoch",
        "fields_at",
        "flexible",
        "generation",
        "hosted",
        "isolation_level",
        "max_bytes",
        "min_bytes",
        "misses",
        "pack",
        "parts",
        "prefix",
        "size",
        "suffix",
        "suffix_at",
        "tail",
        "unpack",
        "version",
    )

    def __init__(self, misses: int) -> None:
        self.misses = misses
        self.version = -1
        self.size = -1
        self.generation = -1
        self.prefix = self.suffix = self.tail = b""
        self.fields_at = self.suffix_at = 0
        self.parts = (b"", b"")

    def learn(self, broker: Broker, frame: bytes, body: FetchRequest, version: int, max_bytes: int) -> bool:
        """Take over the shape of a request; false if it is not one for the short way."""
        if len(body.topics) != 1 or len(body.topics[0].partitions) != 1 or body.forgotten_topics_data or body.rack_id:
            return False
        topic, wanted = body.topics[0], body.topics[0].partitions[0]
        by_id = version >= TOPIC_IDS_SINCE
        if body.session_epoch != FINAL_EPOCH or max(body.replica_id, body.replica_state.replica_id) != -1:
            return False
        if body.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
            return False
        self.flexible = version >= FLEXIBLE_SINCE
        fields = struct.Struct(">qiqi" if self.flexible else ">qqi" if version >= 5 else ">qi")
        values = [wanted.fetch_offset, wanted.log_start_offset, wanted.partition_max_bytes]
        if self.flexible:
            values.insert(1, wanted.last_fetched_epoch)
        elif version < 5:
            del values[1]
        # Tags of the partition and of the topic, forgotten topics, rack, tags.
        behind = 5 if self.flexible else (4 if version >= 7 else 0) + (2 if version >= 11 else 0)
        self.suffix_at = len(frame) - behind
        self.fields_at = self.suffix_at - fields.size
        if frame[self.fields_at : self.suffix_at] != fields.pack(*values):
            return False
        self.hosted = cast(Any, find_partition(broker, (topic.topic_id if by_id else topic.topic, wanted.partition)))
        self.prefix, self.suffix = frame[_BODY_AT : self.fields_at], frame[self.suffix_at :]
        self.size, self.version = len(frame), version
        self.unpack = fields.unpack_from
        self.current_leader_epoch = wanted.current_leader_epoch
        self.isolation_level = body.isolation_level
        self.max_bytes = min(body.max_bytes, max_bytes)
        self.min_bytes = min(body.min_bytes, self.max_bytes)
        self._prepare(topic.topic, topic.topic_id if by_id else None, wanted.partition)
        self.generation = broker.partitions.generation
        return True

    def _prepare(self, topic: str, topic_id: Any, partition: int) -> None:
        """Encode an answer without records once, and take it apart at its numbers."""
        data = PartitionData(partition_index=partition, records=b"")
        data.high_watermark, data.last_stable_offset, data.log_start_offset = _MARKS
        data.aborted_transactions = [] if self.isolation_level == READ_COMMITTED else None
        answer = FetchableTopicResponse(topic=topic) if topic_id is None else FetchableTopicResponse(topic_id=topic_id)
        answer.partitions.append(data)
        (frame,) = encode_with_ranges(FetchResponse(responses=[answer]), self.version, 0)
        whole = cast(bytes, frame)
        marks = _pack_marks(*_MARKS)[: 24 if self.version >= 5 else 16]
        before, _, after = whole.partition(marks)
        # Behind the numbers: aborted transactions, preferred replica, size of the records, tags.
        self.tail = after[-3:] if self.flexible else b""
        middle = after[: -len(self.tail) - 1] if self.flexible else after[:-4]
        self.parts = (before[8:], middle)
        self.pack = struct.Struct(f">ii{len(before) - 8}s{'qqq' if self.version >= 5 else 'qq'}{len(middle)}s").pack


def fast_fetch(broker: Broker, max_bytes: int, of_follower: RawHandler) -> RawHandler:
    """The raw handler of Fetch for this broker.

    Args:
        max_bytes: the broker's `fetch.max.bytes`.
        of_follower: the one for connections of followers.
    """
    partitions = broker.partitions

    def fetch(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
        buffer = connection.buffer
        shape: FetchShape | None = connection.fast_fetch
        if (
            shape is None
            or frame_end - position != shape.size
            or shape.version != version
            or shape.generation != partitions.generation
            or not buffer.startswith(shape.prefix, position + _BODY_AT)
            or not buffer.startswith(shape.suffix, position + shape.suffix_at)
        ):
            misses = 0 if shape is None else shape.misses
            if misses >= MISSES_MAX or not FIRST_VERSION <= version <= LAST_VERSION:
                known = connection.follower_fetch is not None
                return known and of_follower(connection, position, frame_end, version, correlation_id)
            shape = connection.fast_fetch = FetchShape(misses + 1)
            if not _learn(shape, broker, bytes(connection.view[position:frame_end]), version, max_bytes):
                return False
            if not short_way_is_open(connection, Operation.READ, shape.hosted.topic):
                # Asked again each time: the lists may change.
                shape.size = -1
                shape.misses = misses
                return False
        answer = _answer(shape, shape.unpack(buffer, position + shape.fields_at), connection, correlation_id)
        if answer is None:
            return False
        shape.misses = 0
        connection.server.fast_fetches += 1
        connection.queue(answer)
        return True

    return fetch


def _learn(shape: FetchShape, broker: Broker, frame: bytes, version: int, max_bytes: int) -> bool:
    try:
        header = decode_request_header(memoryview(frame)[4:])
        body, _ = decode_from(FetchRequest, memoryview(frame)[4:], version, header.body_offset)
        return shape.learn(broker, frame, body, version, max_bytes)
    except (ValueError, struct.error, KafkaError):
        # The long way finds the same mistake and answers for it.
        return False


def _answer(
    shape: FetchShape, fields: tuple[int, ...], connection: Connection, correlation_id: int
) -> bytes | Pending | None:
    """What is ready to be sent, or None for the long way."""
    hosted: Partition = shape.hosted
    offset = fields[0]
    if hosted.refusal() or 0 <= shape.current_leader_epoch != hosted.leader_epoch:
        return None
    log = hosted.log
    if shape.flexible and 0 <= fields[1] != log.leader_epochs.latest:
        return None
    high_watermark = hosted.high_watermark
    last_stable_offset = hosted.last_stable_offset
    end = high_watermark if shape.isolation_level == READ_UNCOMMITTED else last_stable_offset
    log_start_offset = hosted.log_start_offset
    if not log_start_offset <= offset < end or offset < log.local_log_start_offset:
        return None
    try:
        found = read_slice(log.segments, offset, min(shape.max_bytes, fields[-1]), end, True, CACHED_PAGES)
        if found is None or found.length < shape.min_bytes:
            return None
        length = found.length
        if shape.isolation_level == READ_COMMITTED and (
            not all(segment.knows_aborted for segment in log.segments) or log.aborted_transactions(offset, end)
        ):
            return None
        records: bytes | None = None
        if length <= COPIED_UP_TO_BYTES:
            records = read_if_cached(found.file_descriptor, found.position, length)
            if records is None:
                return None
        elif not is_cached(found.file_descriptor, found.position, length):
            return None
    except (WouldWait, KafkaError, OSError):
        return None
    size = encode_unsigned_varint(length + 1) if shape.flexible else length.to_bytes(4, "big")
    before, middle = shape.parts
    numbers = (high_watermark, last_stable_offset, log_start_offset)
    if shape.version < 5:
        numbers = numbers[:2]  # type: ignore[assignment]
    whole = 4 + len(before) + 8 * len(numbers) + len(middle) + len(size) + length + len(shape.tail)
    head: bytes = shape.pack(whole, correlation_id, before, *numbers, middle)
    if records is not None:
        return b"".join((head, size, records, shape.tail))
    pending = Pending(connection, shape.version, correlation_id)
    pending.items = [head + size, range_of(found)]
    if shape.tail:
        pending.items.append(shape.tail)
    found.retain()
    return pending
