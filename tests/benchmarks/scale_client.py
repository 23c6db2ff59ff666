"""What a client sees of many partitions: they are created, take a record each, are asked about, and come back."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.records.builder import build_batch
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from appliance.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from appliance.wire.messages.metadata import MetadataRequest, MetadataResponse
from appliance.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS_PER_TOPIC = 100
PARTITIONS_PER_CREATE = 1_000
PARTITIONS_PER_REQUEST = 500
PRODUCE_VERSION = 12
"""The last one with topic names."""
METADATA_VERSION = 12
LOAD_PARTITIONS = 1_000
CALL_TIMEOUT_MS = 120_000
POLL_S = 0.02
PROBES = 10
TOPIC_ALREADY_EXISTS = 36
LATEST = -1
AWAY = (ConnectionLost, CallTimedOut, KafkaError)

Address = Callable[[], tuple[str, int]]
"""Where the server is now: a restart may move it to another port."""


def names_of(partitions: int) -> list[TopicPartition]:
    """So many partitions, a hundred to a topic."""
    return [
        TopicPartition(f"scale-{number // PARTITIONS_PER_TOPIC:04d}", number % PARTITIONS_PER_TOPIC)
        for number in range(partitions)
    ]


def a_record() -> bytes:
    return build_batch([(int(time.time() * 1000), None, b"x" * 100, ())])


def create(connection: Connection, partitions: Sequence[TopicPartition]) -> None:
    """Create the topics of these partitions, some in each request."""
    counts: dict[str, int] = defaultdict(int)
    for topic, _ in partitions:
        counts[topic] += 1
    names = list(counts)
    step = PARTITIONS_PER_CREATE // PARTITIONS_PER_TOPIC
    for begin in range(0, len(names), step):
        topics = [
            CreatableTopic(name=name, num_partitions=counts[name], replication_factor=1)
            for name in names[begin : begin + step]
        ]
        for row in connection.call(CreateTopicsRequest(topics=topics, timeout_ms=CALL_TIMEOUT_MS)).topics:
            if row.error_code not in (0, TOPIC_ALREADY_EXISTS):
                raise RuntimeError(f"{row.name} was not created: error {row.error_code}: {row.error_message}")


def produce(connection: Connection, partitions: Iterable[TopicPartition], acks: int = 1) -> list[TopicPartition]:
    """One record to each of them in one request; returns those that took it."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    batch = a_record()
    request = ProduceRequest(
        acks=acks,
        timeout_ms=CALL_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=n, records=batch) for n in numbers])
            for topic, numbers in by_topic.items()
        ],
    )
    return [
        TopicPartition(topic.name, row.index)
        for topic in connection.call(request, PRODUCE_VERSION).responses
        for row in topic.partition_responses
        if row.error_code == 0
    ]


def produce_to_all(
    address: Address, partitions: Sequence[TopicPartition], deadline: float, on_first: Callable[[], None] | None = None
) -> None:
    """Try until each has taken a record, at first a few at random, then all. TimeoutError at the deadline."""
    left = dict.fromkeys(partitions)
    chance = random.Random(len(left))
    connection: Connection | None = None
    first = on_first is not None
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} of {len(partitions)} partitions take no records")
        try:
            if connection is None or not connection.is_open:
                connection = Connection(*address(), timeout_ms=CALL_TIMEOUT_MS)
            if first:
                taken_first = produce(connection, chance.sample(list(partitions), min(PROBES, len(partitions))))
                if not taken_first:
                    time.sleep(POLL_S)
                    continue
                first = False
                for done in taken_first:
                    del left[done]
                if on_first is not None:
                    on_first()
            waiting = list(left)
            taken = 0
            for begin in range(0, len(waiting), PARTITIONS_PER_REQUEST):
                for done in produce(connection, waiting[begin : begin + PARTITIONS_PER_REQUEST]):
                    del left[done]
                    taken += 1
            if not taken:
                time.sleep(POLL_S)
        except AWAY:
            time.sleep(POLL_S)
    if connection is not None:
        connection.close()


def ends_of(connection: Connection, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each log ends."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        by_topic[topic].append(partition)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in numbers],
            )
            for topic, numbers in by_topic.items()
        ],
    )
    return {
        TopicPartition(topic.name, row.partition_index): row.offset if row.error_code == 0 else -1
        for topic in connection.call(request, 7).topics
        for row in topic.partitions
    }


def metadata_ms(address: tuple[str, int]) -> tuple[float, int]:
    """How long one Metadata answer about everything takes to come, and its partitions that have a leader.

    Reading it would take this client longer than the server took to make it, so the clock stops before.
    """
    request = encode_request(MetadataRequest(topics=None), METADATA_VERSION, 1, "bench-scale")
    with socket.create_connection(address, timeout=CALL_TIMEOUT_MS / 1_000) as connected:
        answer = connected.makefile("rb", buffering=1 << 20)
        began = time.perf_counter()
        connected.sendall(request)
        frame = answer.read(int.from_bytes(answer.read(4), "big"))
        took = (time.perf_counter() - began) * 1_000
    _, response = decode_response(MetadataResponse, frame, METADATA_VERSION)
    return took, sum(row.leader_id >= 0 for topic in response.topics for row in topic.partitions)


class SpreadLoad(threading.Thread):
    """One record at a time to one of many partitions, at random, as fast as they are acknowledged."""

    def __init__(self, address: Address, partitions: Sequence[TopicPartition], seed: int) -> None:
        super().__init__(name="spread-load", daemon=True)
        self.chance = random.Random(seed)
        self.partitions = self.chance.sample(list(partitions), min(LOAD_PARTITIONS, len(partitions)))
        self.acknowledged: dict[TopicPartition, int] = dict.fromkeys(self.partitions, 0)
        self.took_ms: list[float] = []
        self._address = address
        self._ended = threading.Event()

    def run(self) -> None:
        with suppress(*AWAY), Connection(*self._address(), timeout_ms=CALL_TIMEOUT_MS) as connection:
            while not self._ended.is_set():
                partition = self.chance.choice(self.partitions)
                began = time.perf_counter()
                if produce(connection, [partition]):
                    self.took_ms.append((time.perf_counter() - began) * 1_000)
                    self.acknowledged[partition] += 1

    def end(self) -> None:
        self._ended.set()
        self.join()
