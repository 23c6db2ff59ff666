"""What the compatibility tests share: the server that clients talk to, topics, awkward records, and a reader.

The same facts are asked of Apache Kafka, with COMPAT_SERVER=kafka, as `make compat` does. What a test claims must hold
there too.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from appliance.base import ids
from appliance.client.client import Client
from appliance.client.retries import RetryPolicy
from tests.support.running import REAL, RunningAppliance

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 30.0
COME_AGAIN = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)
BROKERS = 3
AGAINST_KAFKA = os.environ.get("COMPAT_SERVER", "appliance") == "kafka"

# Like the peer's: a group's first member does not wait three seconds for others.
SERVER_PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "10",
}


@dataclass(frozen=True)
class Server:
    """What clients connect to, and the folder in which its brokers keep their logs."""

    bootstrap_servers: str
    data: Path
    brokers: int

    def new_topic(self, partitions: int = 1, **configs: str) -> str:
        """A topic that no other test has, led already; configs are Kafka's with _ for the dots. Old records stay.

        Without the wait a producer may have to try again, as with Kafka: leaders hear of a topic one by one.
        """
        name = f"compat-{uuid.uuid4().hex[:12]}"
        config = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(PATIENCE_S)
        with Client(self.bootstrap_servers, retries=RetryPolicy(retry_limit=20)) as client:
            client.list_offsets({ids.TopicPartition(name, number): -1 for number in range(partitions)})
        return name

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def partition_folder(self, topic: str, partition: int = 0) -> Path:
        (folder,) = self.data.glob(f"**/{topic}-{partition}")
        return folder


@contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """An appliance of three brokers, each a process, as a user starts it."""
    config = folder / "server.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in SERVER_PROPERTIES.items()))
    flags = ("--runtime", "local", "--brokers", str(BROKERS), "--services", "none", "--config", str(config))
    with RunningAppliance(folder, *flags, module=REAL) as appliance:
        yield Server(appliance.ready()["bootstrap_servers"], folder / "data", BROKERS)


class Sample(NamedTuple):
    """A record as a client gives it. `timestamp` in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def samples() -> list[Sample]:
    """Records with something unusual about each; the same ones every time."""
    noise = random.Random(7).randbytes
    return [
        Sample(b"key", b"value", [], 1_600_000_000_000),
        Sample(None, b"no key", [], 1_600_000_000_001),
        Sample(b"tombstone", None, [], 1_600_000_000_002),
        Sample(None, None, [], 1_600_000_000_003),
        Sample(b"", b"", [], 1_600_000_000_004),
        Sample(b"earlier", b"goes back in time", [], 1_000),
        Sample(b"first", b"millisecond", [], 1),
        Sample(bytes(range(256)), bytes(range(255, -1, -1)), [], 1_600_000_000_005),
        Sample(b"h", b"one header", [("name", b"value")], 1_600_000_000_006),
        Sample(b"h", b"same name twice", [("n", b"1"), ("n", b"2"), ("m", b"3")], 1_600_000_000_007),
        Sample(b"h", b"null and empty", [("null", None), ("empty", b"")], 1_600_000_000_008),
        Sample(b"h", None, [("größe", "ü".encode()), ("bytes", bytes(range(256)))], 1_600_000_000_009),
        Sample("schlüssel".encode(), b"wert", [], 1_600_000_000_010),
        Sample(b"even", b"x" * 300_000, [], 1_600_000_000_011),
        Sample(b"noisy", noise(200_000), [], 1_600_000_000_012),
        Sample(noise(10_000), b"a long key", [], 1_600_000_000_013),
    ]


KEYS = [
    b"",
    b"a",
    b"ab",
    b"abc",
    b"abcd",
    b"abcde",
    "schlüssel".encode(),
    bytes(range(256)),
    *map(b"%d".__mod__, range(64)),
]
"""For partitioners: every length modulo 4, and signs in the top bit, which murmur2 treats with care."""


def produce(
    server: Server, topic: str, records: Iterable[Sample | bytes], partition: int | None = 0, **options: Any
) -> list[Message]:
    """With librdkafka, where None lets the client choose the partition; the messages in order of acknowledgement."""
    done: list[Message] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        done.append(message)

    producer = Producer({"bootstrap.servers": server.bootstrap_servers, **config_names(options)})
    count = 0
    place = {} if partition is None else {"partition": partition}
    for record in records:
        if isinstance(record, bytes):
            producer.produce(topic, record, on_delivery=delivered, **place)
        else:
            key, value, headers, timestamp = record
            producer.produce(topic, value, key, on_delivery=delivered, timestamp=timestamp, headers=headers, **place)
        count += 1
    assert producer.flush(PATIENCE_S) == 0
    assert len(done) == count
    return done


def read_topic(server: Server, topic: str, partitions: int = 1, **options: Any) -> list[Message]:
    """Every record from the beginning to the end, with librdkafka, in order within each partition."""
    config = {"bootstrap.servers": server.bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer({**config, "enable.auto.commit": False, **config_names(options)})
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return list(_until_ends(consumer, partitions))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, partitions: int) -> Iterator[Message]:
    deadline = time.monotonic() + PATIENCE_S
    while partitions:
        assert time.monotonic() < deadline, "the end does not come"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            partitions -= 1
        else:
            raise AssertionError(error)


def commit_offsets(server: Server, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
    """By partition, as a consumer without assignment. On a new cluster a first try may come too early."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    config = {"bootstrap.servers": server.bootstrap_servers, "group.id": group_id, "enable.auto.commit": False}
    consumer = Consumer(config)

    def done() -> bool:
        try:
            return bool(consumer.commit(offsets=places, asynchronous=False))
        except KafkaException as error:
            assert error.args[0].code() in COME_AGAIN, error
            return False

    try:
        wait_until(done, lambda: time.sleep(0.2))
    finally:
        consumer.close()


def sample_of(message: Message) -> Sample:
    """As it was read."""
    _, timestamp = message.timestamp()
    return Sample(message.key(), message.value(), message.headers() or [], timestamp)


def config_names(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in options.items()}


def wait_until(
    condition: Callable[[], object],
    doing: Callable[[], object] = lambda: time.sleep(0.02),
    patience_s: float = PATIENCE_S,
) -> None:
    """Repeat `doing` until the condition holds; fails when it does not come."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "this does not happen"
        doing()
