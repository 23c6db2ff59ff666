"""The leader's checks of a produced batch: each answer is the one that Apache Kafka gives to the same bytes."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.batch import HEADER_BYTES
from appliance.records.builder import build_batch, encode_record, encode_varint
from appliance.records.compression import compress
from tests.support.kafka_peer import KafkaPeer
from tests.support.replicated import until
from tests.support.requests import list_offset, new_topic, produce

pytestmark = pytest.mark.java

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000
COUNT_AT, DELTA_AT, ATTRIBUTES_AT, MAX_TIMESTAMP_AT = 57, 23, 21, 35


def batch(*timestamps: int, key: bytes | None = b"k", size: int = 10, **options: Any) -> bytearray:
    records = [(timestamp, key, b"v" * size, ()) for timestamp in timestamps or (NOW_MS, NOW_MS)]
    return bytearray(build_batch(records, **options))


def resealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def with_field(layout: str, position: int, value: int, data: bytearray | None = None) -> bytearray:
    """A batch with one field of its header changed, and a crc that fits."""
    data = data or batch()
    struct.pack_into(layout, data, position, value)
    return resealed(data)


def with_body(body: bytes, count: int, codec: int = 0) -> bytearray:
    """A batch with these bytes for records."""
    data = batch()[:HEADER_BYTES] + (compress(codec, body) if codec else body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, DELTA_AT, count - 1)
    struct.pack_into(">i", data, COUNT_AT, count)
    struct.pack_into(">h", data, ATTRIBUTES_AT, codec)
    return resealed(data)


def record(offset_delta: int) -> bytes:
    body = encode_record(0, offset_delta, b"k", b"v")
    return encode_varint(len(body)) + bytes(body)


def message(magic: int, value: bytes = b"value", attributes: int = 0, timestamp: int = NOW_MS) -> bytes:
    """An entry of a message set, as clients wrote it before Kafka 0.11."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(body)) + body


def keyless_among(*keys: bytes | None, codec: int = 0) -> bytearray:
    return bytearray(build_batch([(NOW_MS, key, b"v", ()) for key in keys], codec=codec))


class Case(NamedTuple):
    records: Callable[[], bytes | bytearray | None]
    configs: Mapping[str, str] = {}
    version: int = 9


COMPACTED = {"cleanup.policy": "compact"}
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
A_DAY_BACK = {"message.timestamp.before.max.ms": str(DAY_MS)}
CASES: dict[str, Case] = {
    "a good batch": Case(batch),
    "nothing": Case(lambda: b""),
    "magic 0": Case(lambda: message(0)),
    "magic 1": Case(lambda: message(1)),
    "magic 1 in version 3": Case(lambda: message(1), version=3),
    "magic 1, two messages": Case(lambda: message(1) * 2),
    "magic 3": Case(lambda: with_field(">b", 16, 3)),
    "magic -1": Case(lambda: with_field(">b", 16, -1)),
    "two batches": Case(lambda: batch() + batch()),
    "a batch and half of another": Case(lambda: batch() + batch()[:30]),
    "a batch and a little": Case(lambda: batch() + b"\0" * 5),
    "cut off": Case(lambda: batch()[:-1]),
    "cut off in the header": Case(lambda: batch()[:40]),
    "not a batch": Case(lambda: b"not a batch"),
    "crc": Case(lambda: batch()[:-1] + b"x"),
    "length below a header": Case(lambda: with_field(">i", 8, 20)),
    "negative length": Case(lambda: with_field(">i", 8, -5)),
    "count above the delta": Case(lambda: with_field(">i", COUNT_AT, 3)),
    "count below the delta": Case(lambda: with_field(">i", COUNT_AT, 1)),
    "delta above the count": Case(lambda: with_field(">i", DELTA_AT, 5)),
    "count 0": Case(lambda: with_field(">i", COUNT_AT, 0, with_field(">i", DELTA_AT, -1))),
    "negative count": Case(lambda: with_field(">i", COUNT_AT, -1, with_field(">i", DELTA_AT, -2))),
    "base offset": Case(lambda: with_field(">q", 0, 7)),
    "control batch": Case(lambda: batch(NOW_MS, control=True, producer_id=1, producer_epoch=0, base_sequence=0)),
    "control batch without producer": Case(lambda: batch(NOW_MS, control=True)),
    "transactional without producer": Case(lambda: batch(NOW_MS, transactional=True)),
    "producer without sequence": Case(lambda: batch(producer_id=1, producer_epoch=0, base_sequence=-1)),
    "producer without epoch": Case(lambda: batch(producer_id=1, producer_epoch=-1, base_sequence=0)),
    "producer id -2": Case(lambda: with_field(">q", 43, -2)),
    "unknown codec 5": Case(lambda: with_field(">h", ATTRIBUTES_AT, 5)),
    "unknown codec 7": Case(lambda: with_field(">h", ATTRIBUTES_AT, 7)),
    "unknown attribute bit 7": Case(lambda: with_field(">h", ATTRIBUTES_AT, 0x80)),
    "unknown attribute bit 15": Case(lambda: with_field(">h", ATTRIBUTES_AT, -32768)),
    "delete horizon": Case(lambda: with_field(">h", ATTRIBUTES_AT, 0x40)),
    "zstd before version 7": Case(lambda: batch(codec=4), version=6),
    "zstd in version 7": Case(lambda: batch(codec=4), version=7),
    "append time claimed": Case(lambda: with_field(">h", ATTRIBUTES_AT, 8)),
    "append time claimed where it is set": Case(lambda: with_field(">h", ATTRIBUTES_AT, 8), APPEND_TIME),
    "too large": Case(lambda: batch(size=2_000), {"max.message.bytes": "1000"}),
    "too large together": Case(lambda: batch(*[NOW_MS] * 30), {"max.message.bytes": "500"}),
    "two batches too large together": Case(lambda: batch() + batch(), {"max.message.bytes": "100"}),
    "larger than a segment": Case(
        lambda: batch(size=600_000), {"segment.bytes": "1048576", "max.message.bytes": "4194304"}
    ),
    "too new": Case(lambda: batch(NOW_MS, NOW_MS + DAY_MS)),
    "too new, all": Case(lambda: batch(NOW_MS + DAY_MS, NOW_MS + DAY_MS)),
    "too new but not the last": Case(lambda: batch(NOW_MS + DAY_MS, NOW_MS)),
    "too new in an old version": Case(lambda: batch(NOW_MS + DAY_MS), version=7),
    "too new, packed": Case(lambda: batch(NOW_MS, NOW_MS + DAY_MS, codec=1)),
    "too old": Case(lambda: batch(NOW_MS, NOW_MS - 2 * DAY_MS), A_DAY_BACK),
    "too old, first": Case(lambda: batch(NOW_MS - 2 * DAY_MS, NOW_MS), A_DAY_BACK),
    "too old, packed": Case(lambda: batch(NOW_MS, NOW_MS - 2 * DAY_MS, codec=3), A_DAY_BACK),
    "any age": Case(lambda: batch(5)),
    "no timestamp": Case(lambda: batch(-1)),
    "no timestamp where they must be new": Case(lambda: batch(-1), A_DAY_BACK),
    "too old under append time": Case(lambda: batch(5), APPEND_TIME | A_DAY_BACK),
    "too new under append time": Case(lambda: batch(NOW_MS + DAY_MS), APPEND_TIME),
    "keyless, compacted": Case(lambda: keyless_among(b"k", None, b"k", None), COMPACTED),
    "keyless, compacted, packed": Case(lambda: keyless_among(b"k", None, codec=4), COMPACTED),
    "keyless, compacted, old version": Case(lambda: keyless_among(None), COMPACTED, 7),
    "keyless, compact and delete": Case(lambda: keyless_among(None), {"cleanup.policy": "compact,delete"}),
    "all keyless": Case(lambda: keyless_among(None, None), COMPACTED),
    "empty key, compacted": Case(lambda: keyless_among(b""), COMPACTED),
    "keyless and too new": Case(lambda: bytearray(build_batch([(NOW_MS + DAY_MS, None, b"v", ())])), COMPACTED),
    "inner offsets not dense": Case(lambda: with_body(record(0) + record(2), 2)),
    "inner offsets not dense, packed": Case(lambda: with_body(record(0) + record(2), 2, codec=1)),
    "inner offsets fall": Case(lambda: with_body(record(1) + record(0), 2)),
    "fewer records than said": Case(lambda: with_body(record(0), 2)),
    "fewer records than said, packed": Case(lambda: with_body(record(0), 2, codec=1)),
    "more records than said": Case(lambda: with_body(record(0) + record(1), 1)),
    "more records than said, packed": Case(lambda: with_body(record(0) + record(1), 1, codec=1)),
    "a record that is no record": Case(lambda: with_body(b"\xff" * 20, 1)),
    "a record that is no record, packed": Case(lambda: with_body(b"\xff" * 20, 1, codec=1)),
    "not what the codec packs": Case(lambda: with_field(">h", ATTRIBUTES_AT, 1)),
    "newest timestamp of the header above the records": Case(lambda: with_field(">q", MAX_TIMESTAMP_AT, NOW_MS + 5)),
    "newest timestamp of the header far above": Case(lambda: with_field(">q", MAX_TIMESTAMP_AT, NOW_MS + DAY_MS)),
    "newest timestamp of the header below": Case(lambda: with_field(">q", MAX_TIMESTAMP_AT, 5)),
    "inner offsets not dense, to be packed": Case(
        lambda: with_body(record(0) + record(2), 2), {"compression.type": "gzip"}
    ),
    "too large after packing is not": Case(
        lambda: batch(size=20_000), {"compression.type": "gzip", "max.message.bytes": "1000"}
    ),
    "too large after unpacking": Case(
        lambda: batch(size=20_000, codec=1), {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    ),
    "keyless to be packed": Case(lambda: keyless_among(b"k", None), COMPACTED | {"compression.type": "zstd"}),
    "damaged, to be packed": Case(lambda: with_field(">h", ATTRIBUTES_AT, 1), {"compression.type": "lz4"}),
}


INVALID = (ErrorCode.INVALID_RECORD, list[int]())
STRICTER: dict[str, tuple[ErrorCode, list[int]]] = {
    "a batch and half of another": INVALID,
    "a batch and a little": INVALID,
    "producer without epoch": INVALID,
    "append time claimed": (ErrorCode.INVALID_TIMESTAMP, [0, 1]),
    # What Apache Kafka fails at ("unknown server error") is the producer's own mistake.
    "transactional without producer": INVALID,
    "unknown codec 5": INVALID,
    "unknown codec 7": INVALID,
    "damaged, to be packed": INVALID,
    "inner offsets not dense, to be packed": INVALID,
}
"""What we refuse although Apache Kafka does not, or with another word: error code and bad records."""

UNSEEN = {
    "inner offsets not dense, packed",
    "fewer records than said",
    "fewer records than said, packed",
    "more records than said",
    "more records than said, packed",
    "a record that is no record",
    "a record that is no record, packed",
    "not what the codec packs",
}
"""Header and crc are in order, but not what stands behind: opened only where the topic's configs ask for it."""


class Answer(NamedTuple):
    error_code: int
    base_offset: int
    record_errors: list[int]
    end_offset: int


def answer_of(connection: Connection, case: Case) -> Answer:
    topic = new_topic(connection, configs=case.configs, name=f"checks-{time.time_ns()}")
    # What no look at the topic refuses is refused also while its leader has not heard of it.
    until(lambda: not list_offset(connection, topic, -1, version=7).error_code, f"{topic.name} to be led")
    records = case.records()
    answer = produce(connection, topic, None if records is None else bytes(records), version=case.version)
    indexes = [error.batch_index for error in answer.record_errors]
    return Answer(answer.error_code, answer.base_offset, indexes, list_offset(connection, topic, -1, version=7).offset)


@pytest.fixture(scope="module")
def peer_connection(kafka_peer: KafkaPeer) -> Iterator[Connection]:
    with Connection(kafka_peer.host, kafka_peer.port, client_id="test", timeout_ms=10_000) as connection:
        yield connection


@pytest.mark.parametrize("name", [name for name in CASES if name not in STRICTER and name not in UNSEEN])
def test_the_answer_is_apache_kafkas(connection: Connection, peer_connection: Connection, name: str) -> None:
    assert answer_of(connection, CASES[name]) == answer_of(peer_connection, CASES[name])


@pytest.mark.parametrize("name", STRICTER)
def test_we_are_stricter_on_purpose(connection: Connection, peer_connection: Connection, name: str) -> None:
    code, bad = STRICTER[name]
    assert answer_of(connection, CASES[name]) == Answer(code, -1, bad, 0)
    assert answer_of(peer_connection, CASES[name]).error_code != code, "then it belongs to the others"


@pytest.mark.parametrize("name", sorted(UNSEEN))
def test_records_behind_a_good_header_are_only_opened_where_the_topic_asks_for_it(
    connection: Connection, peer_connection: Connection, name: str
) -> None:
    assert answer_of(connection, CASES[name]).error_code == ErrorCode.NONE
    assert answer_of(peer_connection, CASES[name]).error_code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
    for configs in (COMPACTED, A_DAY_BACK, {"compression.type": "lz4"}):
        asking = CASES[name]._replace(configs=configs)
        assert answer_of(connection, asking) == Answer(ErrorCode.INVALID_RECORD, -1, [], 0)
