"""A broker is killed again and again under stock producers, at moments by chance: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from appliance.wire.messages.create_topics import CreatableTopicResult
from tests.integration.broker.test_kill import Cluster, all_values, wait_until_leading
from tests.support.requests import new_topic

# Many rolls, and flushes all the time.
CONFIGS = {"segment.bytes": "1048576", "flush.messages": "500", "flush.ms": "100", "index.interval.bytes": "512"}
PADDING = b"." * 200
RECORDS_PER_ROUND = 50
BACKLOG_MAX = 3_000

Producing = tuple[Callable[[int, bytes], None], Callable[[], object], Callable[[], None]]
"""Send a record, wait a moment for answers, wait for all of them."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.broker.stop()
    running.controller.stop()


class Load:
    """One producer with a topic of its own; the records are numbered."""

    def __init__(self, name: str, topic: CreatableTopicResult, *, exactly_once: bool) -> None:
        self.name, self.topic, self.exactly_once = name, topic, exactly_once
        self.acknowledged: dict[int, int] = {}
        """Number to offset."""
        self.sent = 0
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        send, idle, flush = self.open()
        while not self.stopping.is_set():
            for _ in range(RECORDS_PER_ROUND):
                send(self.sent, b"%d" % self.sent + PADDING)
                self.sent += 1
            time.sleep(0.01)
            while self.sent - len(self.acknowledged) > BACKLOG_MAX and not self.stopping.is_set():
                idle()
        flush()

    def open(self) -> Producing:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(90)
        assert not self.thread.is_alive(), f"{self.name} has not ended"


class Confluent(Load):
    def __init__(self, cluster: Cluster, topic: CreatableTopicResult, *, exactly_once: bool) -> None:
        super().__init__(f"confluent-kafka, idempotence {exactly_once}", topic, exactly_once=exactly_once)
        order = {"enable.idempotence": True} if exactly_once else {"acks": 1, "max.in.flight": 1}
        servers = f"127.0.0.1:{cluster.port}"
        self.config = {"bootstrap.servers": servers, "message.timeout.ms": 60_000, "reconnect.backoff.max.ms": 500}
        self.config |= order

    def open(self) -> Producing:
        producer = Producer(self.config)

        def send(number: int, value: bytes) -> None:
            def delivered(error: object, message: object) -> None:
                if error is None:
                    self.acknowledged[number] = message.offset()  # type: ignore[attr-defined]
                else:
                    self.errors.append(f"{number}: {error}")

            while True:
                try:
                    producer.produce(self.topic.name, value, partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

        return send, lambda: producer.poll(0.01), lambda: self._flushed(producer.flush(60))

    def _flushed(self, left: int) -> None:
        assert left == 0, f"{left} records are neither acknowledged nor given up"


class KafkaPython(Load):
    def __init__(self, cluster: Cluster, topic: CreatableTopicResult) -> None:
        super().__init__("kafka-python, acks=all", topic, exactly_once=False)
        self.servers = f"127.0.0.1:{cluster.port}"

    def open(self) -> Producing:
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            delivery_timeout_ms=60_000,
            reconnect_backoff_max_ms=500,
        )

        def send(number: int, value: bytes) -> None:
            future = producer.send(self.topic.name, value, partition=0)
            future.add_callback(lambda metadata: self.acknowledged.__setitem__(number, metadata.offset))
            future.add_errback(lambda error: self.errors.append(f"{number}: {error}"))

        def flush() -> None:
            producer.flush(60)
            producer.close()

        return send, lambda: time.sleep(0.01), flush


def check(load: Load, values: list[bytes | None]) -> None:
    numbers = [int((value or b"").rstrip(b".")) for value in values]
    for number, offset in load.acknowledged.items():
        assert offset < len(numbers), f"{load.name}: record {number}, acknowledged at {offset}, is lost"
        assert numbers[offset] == number, f"{load.name}: {numbers[offset]} at {offset}, where {number} was acknowledged"
    assert set(numbers) <= set(range(load.sent)), f"{load.name}: records that nobody sent"
    firsts = list(dict.fromkeys(numbers))
    assert firsts == sorted(firsts), f"{load.name}: out of order"
    if load.exactly_once:
        assert len(numbers) == len(firsts), f"{load.name}: {len(numbers) - len(firsts)} records twice"
        assert not load.errors, load.errors[:5]


def live_and_die(cluster: Cluster, kills: int, seed: int) -> None:
    source = random.Random(seed)
    history = [f"seed {seed}"]
    with cluster.connect() as connection:
        topics = [new_topic(connection, configs=CONFIGS) for _ in range(3)]
    loads: list[Load] = [
        Confluent(cluster, topics[0], exactly_once=True),
        Confluent(cluster, topics[1], exactly_once=False),
        KafkaPython(cluster, topics[2]),
    ]
    began = time.monotonic()
    try:
        for load in loads:
            load.thread.start()
        for _ in range(kills):
            time.sleep(source.uniform(0.3, 1.5))
            if source.random() < 0.3:
                history.append(f"{time.monotonic() - began:.3f} s: paused")
                cluster.broker.process.send_signal(signal.SIGSTOP)
                time.sleep(source.uniform(0.1, 0.5))
                if source.random() < 0.5:
                    cluster.broker.process.send_signal(signal.SIGCONT)
            cluster.broker.kill()
            history.append(f"{time.monotonic() - began:.3f} s: killed, acknowledged {[*map(_count, loads)]}")
            cluster.start_broker()
            with cluster.connect() as connection:
                for topic in topics:
                    wait_until_leading(connection, topic)
            history.append(f"{time.monotonic() - began:.3f} s: leads again")
            counts = [*map(_count, loads)]
            for _ in range(1_500):
                if all(new > old for new, old in zip(map(_count, loads), counts, strict=True)):
                    break
                time.sleep(0.01)
            else:
                raise AssertionError(f"a producer does not come back: {[*map(_count, loads)]} after {counts}")
    finally:
        for load in loads:
            load.stopping.set()
        print("\n".join(history))
    for load in loads:
        load.stop()
    with cluster.connect() as connection:
        for load in loads:
            check(load, all_values(connection, load.topic, 0))


def _count(load: Load) -> int:
    return len(load.acknowledged)


def _seed() -> int:
    return int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1 << 32))


def test_stock_producers_lose_nothing_when_their_broker_is_killed_three_times(cluster: Cluster) -> None:
    live_and_die(cluster, kills=3, seed=_seed())


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_stock_producers_lose_nothing_when_their_broker_is_killed_twenty_times(cluster: Cluster) -> None:
    live_and_die(cluster, kills=20, seed=_seed())
