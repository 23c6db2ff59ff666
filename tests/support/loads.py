"""Stock producers that write numbered records while a cluster suffers, and the check of what came of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import Producer
from kafka import KafkaProducer

PADDING = b"." * 200
BACKLOG_MAX = 3_000
DELIVERY_TIMEOUT_MS = 120_000

Producing = tuple[Callable[[int, bytes], None], Callable[[], object], Callable[[], None]]
"""Send a record, wait a moment for answers, wait for all of them."""


class Load:
    """One producer with a topic of its own. Records are numbered and go to the partitions in turns."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        topic: str,
        *,
        partitions: int = 1,
        exactly_once: bool = False,
        ordered: bool = True,
        records_per_round: int = 50,
    ) -> None:
        self.name, self.bootstrap_servers, self.topic = name, bootstrap_servers, topic
        self.partitions, self.exactly_once, self.ordered = partitions, exactly_once, ordered
        self.acknowledged: dict[int, int] = {}
        """Number to offset."""
        self.sent_before: dict[int, int] = {}
        """Number to how many records may have been sent when it was acknowledged."""
        self.sent = 0
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self._records_per_round = records_per_round
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        send, idle, flush = self.open()
        while not self.stopping.is_set():
            for _ in range(self._records_per_round):
                send(self.sent, b"%d" % self.sent + PADDING)
                self.sent += 1
            time.sleep(0.01)
            while self.sent - len(self.acknowledged) > BACKLOG_MAX and not self.stopping.is_set():
                idle()
        flush()

    def partition_of(self, number: int) -> int:
        return number % self.partitions

    def took(self, number: int, offset: int) -> None:
        """The record is acknowledged."""
        # One more: this may be told while a record is handed over.
        self.sent_before[number] = self.sent + 1
        self.acknowledged[number] = offset

    def open(self) -> Producing:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(150)
        assert not self.thread.is_alive(), f"{self.name} has not ended"


class Confluent(Load):
    """confluent-kafka; `config` says how sure it wants to be."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        config: Mapping[str, object],
        *,
        partitions: int = 1,
        ordered: bool = True,
        records_per_round: int = 50,
    ) -> None:
        super().__init__(
            f"confluent-kafka {dict(config)}",
            bootstrap_servers,
            topic,
            partitions=partitions,
            exactly_once=bool(config.get("enable.idempotence")),
            ordered=ordered,
            records_per_round=records_per_round,
        )
        self.config = {
            "bootstrap.servers": bootstrap_servers,
            "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
            **config,
        }

    def open(self) -> Producing:
        producer = Producer(self.config)

        def send(number: int, value: bytes) -> None:
            def delivered(error: object, message: object) -> None:
                if error is None:
                    self.took(number, message.offset())  # type: ignore[attr-defined]
                else:
                    self.errors.append(f"{number}: {error}")

            while True:
                try:
                    producer.produce(self.topic, value, partition=self.partition_of(number), on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)

        return send, lambda: producer.poll(0.01), lambda: self._flushed(producer.flush(DELIVERY_TIMEOUT_MS / 1_000))

    def _flushed(self, left: int) -> None:
        if left:
            self.errors.append(f"{left} records are neither acknowledged nor given up")


class KafkaPython(Load):
    """kafka-python with acks=all and one request at a time, so that the order is kept."""

    def __init__(self, bootstrap_servers: str, topic: str, *, partitions: int = 1, records_per_round: int = 50) -> None:
        name = "kafka-python, acks=all"
        super().__init__(name, bootstrap_servers, topic, partitions=partitions, records_per_round=records_per_round)

    def open(self) -> Producing:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap_servers.split(","),
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            reconnect_backoff_max_ms=500,
            # It does not go back to the bootstrap servers: having learned of one broker while the others were away,
            # it would know no other for five minutes.
            metadata_max_age_ms=1_000,
        )

        def send(number: int, value: bytes) -> None:
            future = producer.send(self.topic, value, partition=self.partition_of(number))
            future.add_callback(lambda metadata: self.took(number, metadata.offset))
            future.add_errback(lambda error: self.errors.append(f"{number}: {error}"))

        def flush() -> None:
            producer.flush(DELIVERY_TIMEOUT_MS / 1_000)
            producer.close()

        return send, lambda: time.sleep(0.01), flush


def check(load: Load, logs: Sequence[Sequence[bytes | None]]) -> None:
    """What was acknowledged lies where it was said to lie, in order, and once if that was promised.

    Args:
        logs: the values of each partition, by offset from 0.
    """
    found = [[int((value or b"").rstrip(b".")) for value in values] for values in logs]
    for number, offset in load.acknowledged.items():
        numbers = found[load.partition_of(number)]
        assert offset < len(numbers), f"{load.name}: record {number}, acknowledged at {offset}, is lost"
        assert numbers[offset] == number, f"{load.name}: {numbers[offset]} at {offset}, where {number} was acknowledged"
    for partition, numbers in enumerate(found):
        sent = {number for number in range(load.sent) if load.partition_of(number) == partition}
        assert set(numbers) <= sent, f"{load.name}: records that nobody sent to partition {partition}"
        firsts = list(dict.fromkeys(numbers))
        if load.ordered:
            assert firsts == sorted(firsts), f"{load.name}: partition {partition} is out of order"
        check_order(load, partition)
        if load.exactly_once:
            assert len(numbers) == len(firsts), f"{load.name}: {len(numbers) - len(firsts)} records twice"
    if load.exactly_once:
        assert not load.errors, load.errors[:5]


def check_order(load: Load, partition: int) -> None:
    """What was sent after a record was acknowledged lies behind it, whatever the client does with its retries."""
    numbers = [number for number in load.acknowledged if load.partition_of(number) == partition]
    by_acknowledgement = sorted(numbers, key=lambda number: load.sent_before[number])
    passed, last = 0, -1
    for number in sorted(numbers):
        while passed < len(numbers) and load.sent_before[by_acknowledgement[passed]] <= number:
            last = max(last, load.acknowledged[by_acknowledgement[passed]])
            passed += 1
        assert load.acknowledged[number] > last, (
            f"{load.name}: record {number} at {load.acknowledged[number]}, sent after what was acknowledged at {last}"
        )
