"""The short way of a produce request with several partitions gives, byte for byte, what the long way gives."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.records.builder import build_batch
from appliance.server.handlers import produce_fast, produce_many
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.create_topics import CreatableTopicResult
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.broker import RunningCluster
from tests.support.requests import batch_of, fetch, new_topic, produce_request
from tests.support.server import receive_frame

Send = Callable[[bytes], bytes]
PARTITIONS = 5
TIMESTAMP_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
PRODUCER_ID = 7_000


class ShortWay:
    """How many requests took it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = 0
        real = produce_many._append

        def append(*arguments: Any) -> None:
            self.requests += 1
            real(*arguments)

        monkeypatch.setattr(produce_many, "_append", append)


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> ShortWay:
    return ShortWay(monkeypatch)


@pytest.fixture
def client(cluster: RunningCluster) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10) as sock:
        yield sock


@pytest.fixture
def send(client: socket.socket) -> Send:
    def exchange(frame: bytes) -> bytes:
        client.sendall(frame)
        return receive_frame(client)

    return exchange


@pytest.fixture
def send_the_long_way(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Send]:
    with socket.create_connection(("127.0.0.1", cluster.brokers[1].port), timeout=10) as sock:

        def exchange(frame: bytes) -> bytes:
            with monkeypatch.context() as patched:
                patched.setattr(produce_fast, "_learn", lambda *_: None)
                patched.setattr(produce_many, "_learn", lambda *_: None)
                sock.sendall(frame)
                return receive_frame(sock)

        yield exchange


def good(chance: random.Random, **options: int) -> bytes:
    values = [(TIMESTAMP_MS, None, b"x" * chance.choice((1, 20, 300)), []) for _ in range(chance.randint(1, 3))]
    return build_batch(values, **options)  # type: ignore[arg-type]


def bad(chance: random.Random) -> bytes | None:
    batch = bytearray(good(chance))
    kind = chance.randrange(8)
    if kind == 0:
        batch[-1] ^= 1
    elif kind == 1:
        batch[16] = chance.choice((0, 1, 3))
    elif kind == 2:
        return bytes(batch[: chance.randrange(len(batch))])
    elif kind == 3:
        return None
    elif kind == 4:
        return b"x" * 2_000
    elif kind == 5:
        batch[11] ^= 1
    elif kind == 6:
        return good(chance) + good(chance)
    else:
        return good(chance, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=1_000_000)
    return bytes(batch)


class Requests:
    """The same requests for two pairs of topics; producers go on where they stopped."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._sequences: dict[tuple[int, int], int] = {}

    def next(self) -> tuple[list[list[tuple[int, bytes | None]]], int, int]:
        """Rows of partition and records for each topic, version, acks."""
        chance = self.chance
        spoils = chance.random() < 0.3
        is_idempotent = chance.random() < 0.4
        topics: list[list[tuple[int, bytes | None]]] = []
        for topic in range(chance.randint(1, 2)):
            count = chance.randint(1, PARTITIONS)
            if chance.random() < 0.1:
                chosen = chance.choices(range(PARTITIONS + 1), k=count)
            else:
                chosen = chance.sample(range(PARTITIONS), count)
            rows: list[tuple[int, bytes | None]] = []
            for partition in chosen:
                if spoils and chance.random() < 0.3:
                    rows.append((partition, bad(chance)))
                elif is_idempotent:
                    rows.append((partition, self._numbered(topic, partition)))
                else:
                    rows.append((partition, good(chance)))
            topics.append(rows)
        return topics, chance.randint(3, 13), chance.choice((1, -1, 1, -1, 2))

    def _numbered(self, topic: int, partition: int) -> bytes:
        sequence = self._sequences.get((topic, partition), 0)
        what = self.chance.random()
        if what < 0.1 and sequence:
            sequence -= 1
        elif what < 0.15:
            sequence += 5
        else:
            self._sequences[topic, partition] = sequence + 1
        return build_batch(
            [(TIMESTAMP_MS, None, b"n", [])], producer_id=PRODUCER_ID + 1, producer_epoch=0, base_sequence=sequence
        )


def frame_of(
    topics: list[CreatableTopicResult], rows: list[list[tuple[int, bytes | None]]], version: int, acks: int
) -> bytes:
    data = [
        TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=index, records=records) for index, records in of_topic],
        )
        for topic, of_topic in zip(topics, rows, strict=False)
    ]
    return encode_request(ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=data), version, 7, "test")


def renamed(answer: bytes, topics: list[CreatableTopicResult], others: list[CreatableTopicResult]) -> bytes:
    for topic, other in zip(topics, others, strict=True):
        answer = answer.replace(topic.name.encode(), other.name.encode())
        answer = answer.replace(topic.topic_id.bytes, other.topic_id.bytes)
    return answer


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_give_the_same_bytes_and_the_same_logs(
    connection: Connection, short_way: ShortWay, send: Send, send_the_long_way: Send, seed: int
) -> None:
    short, long = (
        [new_topic(connection, PARTITIONS, KEPT, name=f"many-{seed}-{way}-{number}") for number in range(2)]
        for way in ("s", "l")
    )
    requests = Requests(seed)
    errors = set()
    for _ in range(150):
        rows, version, acks = requests.next()
        expected = send_the_long_way(frame_of(long, rows, version, acks))
        before = short_way.requests
        answer = send(frame_of(short, rows, version, acks))
        _, response = decode_response(ProduceResponse, answer, version)
        wanted = decode_response(ProduceResponse, expected, version)
        assert renamed(answer, short, long) == expected, (rows, version, acks, response, wanted)
        errors |= {one.error_code for topic in response.responses for one in topic.partition_responses}
        if short_way.requests > before:
            assert version >= 5 and acks in (1, -1)
    assert short_way.requests > 30
    assert {0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} <= errors
    for one, other in zip(short, long, strict=True):
        for partition in range(PARTITIONS):
            records = fetch(connection, one, 0, partition=partition).records
            assert records == fetch(connection, other, 0, partition=partition).records
            assert records


def test_a_partition_that_fails_takes_no_neighbour_with_it(
    connection: Connection, short_way: ShortWay, send: Send
) -> None:
    topic = new_topic(connection, 3)
    late = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=5)
    first = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    assert short_way.requests == 0
    send(frame_of([topic], [[(0, first), (1, first), (2, first)]], 12, -1))
    answer = send(frame_of([topic], [[(0, batch_of(b"y")), (1, late), (2, batch_of(b"y"))]], 12, -1))
    assert short_way.requests == 2
    _, response = decode_response(ProduceResponse, answer, 12)
    rows = response.responses[0].partition_responses
    assert [row.error_code for row in rows] == [0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
    assert [row.base_offset for row in rows] == [1, -1, 1]


def test_without_acks_a_failure_ends_the_connection(
    connection: Connection, short_way: ShortWay, client: socket.socket
) -> None:
    topic = new_topic(connection, 2)
    first = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    late = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=5)
    client.sendall(frame_of([topic], [[(0, first), (1, first)]], 12, 0))
    client.sendall(frame_of([topic], [[(0, batch_of(b"y")), (1, late)]], 12, 0))
    assert client.recv(1) == b""
    assert short_way.requests == 2
    assert fetch(connection, topic, 0).high_watermark == 2, "its neighbour is kept"


def test_a_frame_that_ends_too_early_is_not_read_into_the_next_one(
    connection: Connection, short_way: ShortWay, client: socket.socket
) -> None:
    topic = new_topic(connection, 2)
    whole = encode_request(produce_request(topic, {0: batch_of(b"x"), 1: batch_of(b"y")}), 12, 7, "test")
    for cut in range(1, len(whole) - 60):
        with socket.create_connection(client.getpeername(), timeout=10) as sock:
            sock.sendall((len(whole) - 4 - cut).to_bytes(4, "big") + whole[4 : len(whole) - cut] + whole)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
    assert short_way.requests == 0
    assert fetch(connection, topic, 0).high_watermark == 0
