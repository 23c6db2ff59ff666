"""The short way of a produce request: one topic, one partition, one ordinary batch, versions 5 to 13.

Requests of one connection resemble each other: between the correlation id and the partition index stand the client id,
acks, timeout and topic, the same bytes each time. They are compared as a whole with those of the last request; what is
left to read is the partition index, the batch and the tags behind it. Requests with several partitions have a short way
of their own (`produce_many`). Whatever is not ordinary (another shape, an error, a topic with special wishes) takes the
long way of `produce`, which gives it its answer.

```
 0  i32 size, i16 api_key, i16 api_version, i32 correlation_id
12  client id (and tags from version 9), transactional id, acks, timeout, 1 topic: name or id, 1 partition
    i32 partition index, size of the records (i32, or a varint of size + 1 from version 9), the batch
    empty tags of the partition, the topic and the request (from version 9)
```
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

from crc32c import crc32c

from appliance.authorizer.bindings import Operation
from appliance.base.errors import KafkaError
from appliance.partition.produce_checks import ZSTD, ZSTD_FIRST_PRODUCE_VERSION
from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader
from appliance.server.access import short_way_is_open
from appliance.server.connection import Connection, LateAnswer
from appliance.server.context import Broker, Topic
from appliance.server.dispatcher import RawHandler
from appliance.server.handlers.produce_commit import CommitWaits
from appliance.server.handlers.produce_many import (
    BODY_AT,
    FIRST_VERSION,
    FLEXIBLE_SINCE,
    TOPIC_IDS_SINCE,
    many_produce,
    parse_head,
)
from appliance.server.handlers.produce_results import wait_for_commit
from appliance.server.requests import Pending

_unpack_index_and_size = struct.Struct(">ii").unpack_from
_unpack_index = struct.Struct(">i").unpack_from
_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_new_tuple = tuple.__new__


class Shape:
    """What the requests of a connection have in common, and how they are answered."""

    __slots__ = (
        "acks",
        "flexible",
        "frame_size",
        "generation",
        "head",
        "pack",
        "partitions",
        "prefix",
        "records_at",
        "tail",
        "timeout_ms",
        "topic",
        "version",
        "waits",
    )

    waits: CommitWaits

    def __init__(self, version: int, prefix: bytes, acks: int, timeout_ms: int, topic: Topic, topic_bytes: bytes):
        self.version = version
        self.prefix = prefix
        self.records_at = BODY_AT + len(prefix)
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.partitions = topic.partitions
        self.generation = 0
        self.flexible = version >= FLEXIBLE_SINCE
        # The answer: size, correlation id | head: tags, 1 topic, its name or id, 1 partition | index, error code, base
        # offset, append time, log start | tail: no record errors, no message, tags, throttle time, tags.
        if self.flexible:
            self.head = b"\0\2" + topic_bytes + b"\2"
            self.tail = b"\1\0" + b"\0" + b"\0" + b"\0\0\0\0" + b"\0"
        else:
            self.head = b"\0\0\0\1" + topic_bytes + b"\0\0\0\1"
            self.tail = (b"\0\0\0\0" + b"\xff\xff" if version >= 8 else b"") + b"\0\0\0\0"
        answer = struct.Struct(f">ii{len(self.head)}sihqqq{len(self.tail)}s")
        self.pack = answer.pack
        self.frame_size = answer.size - 4


def fast_produce(broker: Broker) -> RawHandler:
    """The raw handler of Produce for this broker."""
    partitions = broker.partitions
    header_class = BatchHeader
    many = many_produce(broker)
    waits = CommitWaits(broker)

    def produce(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
        buffer = connection.buffer
        shape: Shape | None = connection.fast
        if (
            shape is None
            or shape.version != version
            or shape.generation != partitions.generation
            or not buffer.startswith(shape.prefix, position + BODY_AT)
        ):
            shape = _learn(broker, buffer, position, frame_end, version)
            if shape is None or not short_way_is_open(connection, Operation.WRITE, shape.topic.name):
                # The shape that is known stays: small requests of one partition come between those of several.
                return many(connection, position, frame_end, version, correlation_id)
            shape.waits = waits
            connection.fast = shape
        at = position + shape.records_at
        if shape.flexible:
            if frame_end - at < 8 + HEADER_BYTES:
                return False
            (index,) = _unpack_index(buffer, at)
            at += 4
            size = buffer[at]
            at += 1
            if size > 127:
                size &= 127
                shift = 7
                while True:
                    byte = buffer[at]
                    at += 1
                    size |= (byte & 127) << shift
                    if byte < 128:
                        break
                    shift += 7
                    if shift > 28:
                        return False
            size -= 1
            batch_end = at + size
            if batch_end + 3 != frame_end or buffer[batch_end] or buffer[batch_end + 1] or buffer[batch_end + 2]:
                return False
        else:
            if frame_end - at < 8 + HEADER_BYTES:
                return False
            index, size = _unpack_index_and_size(buffer, at)
            at += 8
            batch_end = at + size
            if batch_end != frame_end:
                return False
        hosted = shape.partitions.get(index)
        if hosted is None or not hosted.plain or size < HEADER_BYTES:
            return False
        header = _unpack_header(buffer, at)
        base, length, _, magic, crc, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, count = header
        config = hosted.config
        now_ms = connection.server.now_ms
        if (
            magic != MAGIC
            or length + LENGTH_END != size
            or size > hosted.batch_max_bytes
            # No codec above zstd, no bit above the codec: transactional, control, append time and unknown ones.
            or not 0 <= attributes <= ZSTD
            or (attributes == ZSTD and version < ZSTD_FIRST_PRODUCE_VERSION)
            or delta != count - 1
            or count <= 0
            or base
            or max_timestamp - now_ms > config.message_timestamp_after_max_ms
            or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        ):
            return False
        view = connection.view
        if crc32c(view[at + CRC_START : batch_end]) != crc:
            return False
        try:
            base_offset = hosted.append(view[at:batch_end], _new_tuple(header_class, header), now_ms)
        except KafkaError:
            # Nothing was staged; the long way finds the same error and puts it into words.
            return False
        connection.server.fast_requests += 1
        if not connection.held:
            connection.hold()
        if shape.acks:
            connection.answers.append(
                (_after_write, shape, correlation_id, index, base_offset, base_offset + count, hosted)
            )
        return True

    return produce


def _after_write(connection: Connection, late: LateAnswer) -> bytes | Pending:
    shape: Shape
    _, shape, correlation_id, index, base_offset, required_offset, hosted = late
    if required_offset > hosted.high_watermark and (shape.acks != 1 or required_offset > hosted.log_end_offset):
        if required_offset <= hosted.log_end_offset and hosted.leader is not None and not hosted.acks_wait_for_flush:
            return shape.waits.wait(connection, shape, correlation_id, hosted, index, base_offset, required_offset)
        topic = shape.topic
        return wait_for_commit(
            connection,
            (shape.version, correlation_id, shape.acks, shape.timeout_ms),
            (topic.name, topic.topic_id, index),
            hosted,
            base_offset,
            required_offset,
        )
    return shape.pack(
        shape.frame_size,
        correlation_id,
        shape.head,
        index,
        0,
        base_offset,
        -1,
        hosted.log.log_start_offset,
        shape.tail,
    )


def _learn(broker: Broker, buffer: bytearray, position: int, frame_end: int, version: int) -> Shape | None:
    """Read a request's beginning field by field; None when it has not the shape of the short way."""
    if version < FIRST_VERSION or version > TOPIC_IDS_SINCE:
        return None
    try:
        shape = _parse(broker, memoryview(buffer)[:frame_end], position + BODY_AT, version)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if shape is not None:
        shape.generation = broker.partitions.generation
    return shape


def _parse(broker: Broker, view: memoryview, start: int, version: int) -> Shape | None:
    flexible = version >= FLEXIBLE_SINCE
    head = parse_head(view, start, version)
    if head is None:
        return None
    at, acks, timeout_ms = head
    topic: Any
    if flexible:
        if view[at] != 2:
            return None
        at += 1
        topic_at = at
        if version >= TOPIC_IDS_SINCE:
            at += 16
            topic = broker.partitions.by_id.get(uuid.UUID(bytes=bytes(view[topic_at:at])))
        else:
            length = view[at]
            if length > 127 or not length:
                # Names have up to 249 characters; long ones take the long way.
                return None
            # The length on the wire is one more than the name's, so that this counts the length byte too.
            at += length
            topic = broker.partitions.by_name.get(str(view[topic_at + 1 : at], "utf-8"))
        topic_bytes = bytes(view[topic_at:at])
        if view[at] != 2:
            return None
        at += 1
    else:
        if struct.unpack_from(">i", view, at)[0] != 1:
            return None
        at += 4
        topic_at = at
        (length,) = struct.unpack_from(">h", view, at)
        at += 2 + length
        topic = broker.partitions.by_name.get(str(view[topic_at + 2 : at], "utf-8"))
        topic_bytes = bytes(view[topic_at:at])
        if struct.unpack_from(">i", view, at)[0] != 1:
            return None
        at += 4
    if topic is None or at > len(view):
        return None
    return Shape(version, bytes(view[start:at]), acks, timeout_ms, topic, topic_bytes)
