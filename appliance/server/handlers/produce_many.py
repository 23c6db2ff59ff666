"""The short way of a produce request with several partitions, each with one ordinary batch; versions 5 to 13.

One walk over the frame finds all batches and checks them; only then is anything appended, so that a request in which
one thing is not ordinary takes the long way of `produce` as a whole. The answer is packed straight into bytes; where
a partition fails or has to wait for the high watermark, `produce_results` puts it into words.

```
 0  i32 size, i16 api_key, i16 api_version, i32 correlation_id
12  client id (and tags from version 9), transactional id, acks, timeout: the head, the same in each request
    number of topics; for each: name or id, number of partitions; for each:
      i32 partition index, size of the records, the batch, empty tags (from version 9)
    empty tags of each topic and of the request (from version 9)
```

Numbers are i32, or from version 9 varints that are one larger.
"""

from __future__ import annotations

import logging
import struct
import uuid

from crc32c import crc32c

from appliance.authorizer.bindings import Operation
from appliance.base.errors import ErrorCode, KafkaError
from appliance.partition.produce_checks import ZSTD, ZSTD_FIRST_PRODUCE_VERSION
from appliance.records.batch import CRC_START, HEADER_BYTES, LENGTH_END, MAGIC, BatchHeader
from appliance.server.access import short_way_is_open
from appliance.server.connection import Connection, LateAnswer
from appliance.server.context import Broker, Partition, Topic
from appliance.server.dispatcher import RawHandler
from appliance.server.handlers.produce_results import PartitionResult, answer_written
from appliance.server.requests import Pending
from appliance.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from appliance.wire.varint import encode_unsigned_varint

_log = logging.getLogger(__name__)

FIRST_VERSION = 5
RECORD_ERRORS_SINCE = 8
FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
BODY_AT = 12
KNOWN_TOPICS_MAX = 1_000
"""Topics that a connection's shape remembers by their bytes."""

_unpack_number = struct.Struct(">i").unpack_from
_unpack_index_and_size = struct.Struct(">ii").unpack_from
_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_pack_start = struct.Struct(">ii").pack
_new_tuple = tuple.__new__

Found = tuple[Partition, int, int, int, BatchHeader]
"""Partition, its index, where its batch begins and ends in the receive buffer, the batch's header."""
FoundTopic = tuple[bytes, Topic, list[Found]]
"""What names it on the wire comes first."""
Appended = tuple[Partition, int, int, int]
"""Partition, its index, base offset, and what the high watermark has to reach."""


class ManyShape:
    """The head that the requests of a connection have in common, and the topics that they named."""

    __slots__ = (
        "acks",
        "behind",
        "generation",
        "known",
        "pack",
        "prefix",
        "tail",
        "timeout_ms",
        "topics_at",
        "version",
    )

    def __init__(self, version: int, prefix: bytes, acks: int, timeout_ms: int, generation: int) -> None:
        self.version = version
        self.prefix = prefix
        self.topics_at = BODY_AT + len(prefix)
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.generation = generation
        self.known: dict[bytes, Topic] = {}
        """By what stands for them on the wire."""
        # Behind a partition's numbers: no record errors, no message, tags. Behind the last topic: throttle time, tags.
        if version >= FLEXIBLE_SINCE:
            self.behind, self.tail = b"\1\0\0", b"\0\0\0\0\0"
        else:
            self.behind = b"\0\0\0\0\xff\xff" if version >= RECORD_ERRORS_SINCE else b""
            self.tail = b"\0\0\0\0"
        self.pack = struct.Struct(f">ihqqq{len(self.behind)}s").pack
        """Index, error code, base offset, append time, log start offset, `behind`."""


def many_produce(broker: Broker) -> RawHandler:
    """The raw handler for requests that name several partitions."""
    partitions = broker.partitions

    def produce(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
        buffer = connection.buffer
        shape: ManyShape | None = connection.fast_many
        if (
            shape is None
            or shape.version != version
            or shape.generation != partitions.generation
            or not buffer.startswith(shape.prefix, position + BODY_AT)
        ):
            shape = connection.fast_many = _learn(broker, connection, position, frame_end, version)
            if shape is None:
                return False
        walk = _walk_flexible if version >= FLEXIBLE_SINCE else _walk
        try:
            topics = walk(broker, shape, connection, position + shape.topics_at, frame_end)
        except (IndexError, struct.error, UnicodeDecodeError):
            return False
        if not topics:
            return False
        _append(shape, connection, correlation_id, topics)
        return True

    return produce


def parse_head(view: memoryview, start: int, version: int) -> tuple[int, int, int] | None:
    """Where the head ends, acks and timeout; None when it is not ordinary. Raises struct.error, IndexError."""
    at = start
    (name_length,) = struct.unpack_from(">h", view, at)
    at += 2 + max(0, name_length)
    if version >= FLEXIBLE_SINCE:
        if view[at] or view[at + 1]:
            # Tags in the header, or a transactional id.
            return None
    elif struct.unpack_from(">h", view, at)[0] != -1:
        return None
    at += 2
    acks, timeout_ms = struct.unpack_from(">hi", view, at)
    if not -1 <= acks <= 1:
        return None
    return at + 6, acks, timeout_ms


def _learn(broker: Broker, connection: Connection, position: int, frame_end: int, version: int) -> ManyShape | None:
    if version < FIRST_VERSION or version > TOPIC_IDS_SINCE:
        return None
    view = connection.view[:frame_end]
    start = position + BODY_AT
    try:
        head = parse_head(view, start, version)
    except (struct.error, IndexError):
        return None
    if head is None:
        return None
    end, acks, timeout_ms = head
    return ManyShape(version, bytes(view[start:end]), acks, timeout_ms, broker.partitions.generation)


def _topic(broker: Broker, connection: Connection, shape: ManyShape, name: bytes, skip: int) -> Topic | None:
    """The topic that these bytes name; `skip`: of its length. Raises UnicodeDecodeError."""
    topic: Topic | None
    if shape.version >= TOPIC_IDS_SINCE:
        topic = broker.partitions.by_id.get(uuid.UUID(bytes=name))
    else:
        topic = broker.partitions.by_name.get(str(name[skip:], "utf-8"))
    if topic is not None and not short_way_is_open(connection, Operation.WRITE, topic.name):
        return None
    if topic is not None:
        if len(shape.known) >= KNOWN_TOPICS_MAX:
            shape.known.clear()
        shape.known[name] = topic
    return topic


def _walk_flexible(
    broker: Broker, shape: ManyShape, connection: Connection, at: int, frame_end: int
) -> list[FoundTopic] | None:
    """From version 9. None when something is not ordinary. Raises IndexError, struct.error, UnicodeDecodeError."""
    buffer, version, by_id = connection.buffer, shape.version, shape.version >= TOPIC_IDS_SINCE
    topics: list[FoundTopic] = []
    count, at = _varint(buffer, at)
    for _ in range(count - 1):
        # The length on the wire is one more than the name's, so that it counts the length byte too. Names have up to
        # 249 characters; long ones take the long way.
        length = 16 if by_id else buffer[at]
        if not 0 < length <= 127:
            return None
        name = bytes(buffer[at : at + length])
        at += length
        topic = shape.known.get(name) or _topic(broker, connection, shape, name, 1)
        if topic is None:
            return None
        hosts = topic.partitions
        rows: list[Found] = []
        partition_count, at = _varint(buffer, at)
        for _ in range(partition_count - 1):
            (index,) = _unpack_number(buffer, at)
            size = buffer[at + 4]
            at += 5
            if size > 127:
                size, at = _varint(buffer, at - 1)
            size -= 1
            end = at + size
            hosted = hosts.get(index)
            if hosted is None or not hosted.plain or not HEADER_BYTES <= size <= hosted.batch_max_bytes:
                return None
            if end >= frame_end or buffer[end]:
                return None
            rows.append((hosted, index, at, end, _unpack_header(buffer, at)))  # type: ignore[arg-type]
            at = end + 1
        if buffer[at]:
            return None
        at += 1
        topics.append((name, topic, rows))
    if at + 1 != frame_end or buffer[at]:
        return None
    return topics if _is_ordinary(connection, topics, version) else None


def _walk(broker: Broker, shape: ManyShape, connection: Connection, at: int, frame_end: int) -> list[FoundTopic] | None:
    """The same up to version 8."""
    buffer = connection.buffer
    topics: list[FoundTopic] = []
    (count,) = _unpack_number(buffer, at)
    at += 4
    for _ in range(count):
        length = 2 + int.from_bytes(buffer[at : at + 2], "big", signed=True)
        if length <= 2 or at + length > frame_end:
            return None
        name = bytes(buffer[at : at + length])
        at += length
        topic = shape.known.get(name) or _topic(broker, connection, shape, name, 2)
        if topic is None:
            return None
        hosts = topic.partitions
        rows: list[Found] = []
        (partition_count,) = _unpack_number(buffer, at)
        at += 4
        for _ in range(partition_count):
            index, size = _unpack_index_and_size(buffer, at)
            at += 8
            end = at + size
            hosted = hosts.get(index)
            if hosted is None or not hosted.plain or not HEADER_BYTES <= size <= hosted.batch_max_bytes:
                return None
            if end > frame_end:
                return None
            rows.append((hosted, index, at, end, _unpack_header(buffer, at)))  # type: ignore[arg-type]
            at = end
        topics.append((name, topic, rows))
    if at != frame_end:
        return None
    return topics if _is_ordinary(connection, topics, shape.version) else None


def _varint(buffer: bytearray, at: int) -> tuple[int, int]:
    """An unsigned varint, and what follows it. Raises IndexError."""
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 28:
            raise IndexError("a varint of more than 32 bits")


def _is_ordinary(connection: Connection, topics: list[FoundTopic], version: int) -> bool:
    """Whether all batches pass the checks of `produce_checks` without a closer look.

    Written out here, as in `produce_fast`: of a plain partition the rest of `is_ordinary` is known, and its size bound
    was checked on the way.
    """
    view, now_ms = connection.view, connection.server.now_ms
    for _, _, rows in topics:
        # The topic's partitions have its configuration in common.
        latest_ms = now_ms + rows[0][0].config.message_timestamp_after_max_ms if rows else 0
        for _, _, at, end, header in rows:
            base, length, _, magic, crc, attributes, delta, _, newest, producer_id, epoch, sequence, count = header
            if (
                magic != MAGIC
                or length + LENGTH_END != end - at
                # No codec above zstd, no bit above the codec: transactional, control, append time and unknown ones.
                or not 0 <= attributes <= ZSTD
                or (attributes == ZSTD and version < ZSTD_FIRST_PRODUCE_VERSION)
                or delta != count - 1
                or count <= 0
                or base
                or newest > latest_ms
                or (producer_id >= 0 and (epoch < 0 or sequence < 0))
                or crc32c(view[at + CRC_START : end]) != crc
            ):
                return False
    return True


def _append(shape: ManyShape, connection: Connection, correlation_id: int, topics: list[FoundTopic]) -> None:
    """Stage all batches, each on its own: what goes wrong is that partition's error."""
    view, now_ms = connection.view, connection.server.now_ms
    if not connection.held:
        connection.hold()
    failed: dict[int, KafkaError] = {}
    number = 0
    appended: list[tuple[bytes, Topic, list[Appended]]] = []
    for name, topic, rows in topics:
        done: list[Appended] = []
        for hosted, index, at, end, header in rows:
            base_offset = -1
            try:
                base_offset = hosted.append(view[at:end], _new_tuple(BatchHeader, header), now_ms)
            except KafkaError as error:
                failed[number] = error
            except Exception:
                _log.exception("produce from %s: partition %d failed", connection.peer, index)
                failed[number] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done.append((hosted, index, base_offset, base_offset + header[12]))
            number += 1
        appended.append((name, topic, done))
    connection.server.fast_requests += 1
    if shape.acks:
        connection.answers.append((_after_write, shape, correlation_id, appended, failed))
    elif failed:
        # acks=0 has no answer that could name an error.
        first = next(iter(failed.values()))
        connection.close(f"acks=0 and {ErrorCode(first.code).name} for one of {number} partitions")


def _after_write(connection: Connection, late: LateAnswer) -> bytes | Pending:
    shape: ManyShape
    topics: list[tuple[bytes, Topic, list[Appended]]]
    _, shape, correlation_id, topics, failed = late
    if failed:
        return _in_words(connection, late)
    acks, pack, is_flexible = shape.acks, shape.pack, shape.version >= FLEXIBLE_SINCE
    pieces = [b"", _count(len(topics), is_flexible)]
    for name, _, rows in topics:
        pieces += (name, _count(len(rows), is_flexible))
        for hosted, index, base_offset, required_offset in rows:
            if required_offset > hosted.high_watermark and (acks != 1 or required_offset > hosted.log_end_offset):
                return _in_words(connection, late)
            pieces.append(pack(index, 0, base_offset, -1, hosted.log.log_start_offset, shape.behind))
        if is_flexible:
            pieces.append(b"\0")
    pieces.append(shape.tail)
    tags = b"\0" if is_flexible else b""
    size = 4 + len(tags) + sum(map(len, pieces))
    pieces[0] = _pack_start(size, correlation_id) + tags
    return b"".join(pieces)


def _count(count: int, is_flexible: bool) -> bytes:
    return encode_unsigned_varint(count + 1) if is_flexible else count.to_bytes(4, "big")


def _in_words(connection: Connection, late: LateAnswer) -> bytes | Pending:
    """Something failed, or has to wait: the long way's answer."""
    shape: ManyShape
    topics: list[tuple[bytes, Topic, list[Appended]]]
    failed: dict[int, KafkaError]
    _, shape, correlation_id, topics, failed = late
    response = ProduceResponse()
    results: list[PartitionResult] = []
    for _, topic, rows in topics:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        response.responses.append(answer)
        for hosted, index, base_offset, required_offset in rows:
            result = PartitionResult(PartitionProduceResponse(index=index))
            error = failed.get(len(results))
            if error is not None:
                result.fail(error.code, error.message)
            else:
                result.hosted, result.base_offset, result.required_offset = hosted, base_offset, required_offset
            answer.partition_responses.append(result.answer)
            results.append(result)
    request = (shape.version, correlation_id, shape.acks, shape.timeout_ms)
    return answer_written(connection, request, response, results)
