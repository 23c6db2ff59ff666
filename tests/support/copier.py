"""A client that copies records from one topic to another in transactions, each record once whatever happens.

Offsets and records are in the same transaction. After an error it aborts and reads again from what is committed, or
begins a new life under the same transactional id, as Kafka's documentation tells applications to do.

librdkafka 2.16 may forget which broker it waits for, on Apache Kafka as here: send_offsets_to_transaction then never
returns, whatever its time limit says (docs/compatibility.md). A call that has not returned long after its time ends a
life, too: the next one fences the producer that is left behind in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

CALL_S = 10.0
LEFT_BEHIND_S = 15.0
RECORDS_PER_TRANSACTION = 20
TRANSACTION_TIMEOUT_MS = 10_000
COMMITS_MAX = 20
QUICK_TO_RETRY = {"retry.backoff.ms": 20, "retry.backoff.max.ms": 200, "reconnect.backoff.max.ms": 200, "log_level": 0}

T = TypeVar("T")


class Copier:
    """Runs on a thread of its own until `stop`. A record goes to the partition that it came from."""

    def __init__(self, bootstrap_servers: str, source: str, sink: str, partitions: int, group_id: str) -> None:
        self.copied = 0
        self.aborted = 0
        self.lives = 0
        self.errors: list[str] = []
        """What calls of the client failed with."""
        self.left_behind: list[Producer] = []
        """Whose calls have never returned; to let go of one would wait for it."""
        self._common = {"bootstrap.servers": bootstrap_servers, **QUICK_TO_RETRY}
        self._sink, self._group_id = sink, group_id
        self._places = [TopicPartition(source, number) for number in range(partitions)]
        reader = {"group.id": group_id, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**self._common, **reader, "auto.offset.reset": "earliest"})
        self._producer: Producer | None = None
        self._call, self._call_began = "nothing", time.monotonic()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the transaction that is under way."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
        self.check()

    def check(self) -> None:
        """Fails with what the thread has failed with."""
        if self._failure is not None:
            raise self._failure

    @property
    def state(self) -> str:
        """For the message of a test that waits in vain."""
        age_s = time.monotonic() - self._call_began
        return (
            f"{self.copied} copied, {self.aborted} aborted, {self.lives} lives, {len(self.left_behind)} left behind; "
            f"in {self._call} for {age_s:.1f} s; errors: {self.errors[-5:]}"
        )

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as failure:
            self._failure = failure

    def _turn(self) -> None:
        try:
            producer = self._producer or self._begin_life()
        except KafkaException:
            return
        consumed = self._do("consume", self._consumer.consume, RECORDS_PER_TRANSACTION, 0.2)
        read = [message for message in consumed if message.error() is None]
        if not read:
            return
        try:
            self._copy(producer, read)
            self.copied += len(read)
        except KafkaException as error:
            self.aborted += 1
            self._recover(producer, error)
        except TimeoutError:
            self.aborted += 1
            self.left_behind.append(producer)
            self._producer = None

    def _begin_life(self) -> Producer:
        """A producer that has fenced all before it, and a reader at what is committed."""
        self.lives += 1
        options = {"transactional.id": self._group_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 1}
        producer = Producer({**self._common, **options})
        self._do("init_transactions", producer.init_transactions, CALL_S)
        self._rewind()
        self._producer = producer
        return producer

    def _rewind(self) -> None:
        found = self._do("committed", self._consumer.committed, self._places, CALL_S)
        for place in found:
            if place.error is not None:
                raise KafkaException(place.error)
        self._consumer.assign([TopicPartition(each.topic, each.partition, max(0, each.offset)) for each in found])

    def _copy(self, producer: Producer, read: list[Message]) -> None:
        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in read}
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]
        producer.begin_transaction()
        for message in read:
            producer.produce(self._sink, message.value(), partition=message.partition())
        metadata = self._consumer.consumer_group_metadata()
        self._do("send_offsets", _bounded, producer.send_offsets_to_transaction, offsets, metadata, CALL_S)
        for _ in range(COMMITS_MAX):
            try:
                self._do("commit", producer.commit_transaction, CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        raise AssertionError("a commit does not come to an end")

    def _recover(self, producer: Producer, error: KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            try:
                self._do("abort", producer.abort_transaction, CALL_S)
                self._rewind()
                return
            except KafkaException:
                pass
        self._producer = None

    def _do(self, name: str, call: Callable[..., T], *arguments: Any) -> T:
        self._call, self._call_began = name, time.monotonic()
        try:
            return call(*arguments)
        except (KafkaException, TimeoutError) as error:
            self.errors.append(f"{name}: {error}")
            raise
        finally:
            self._call, self._call_began = "nothing", time.monotonic()


def _bounded(call: Callable[..., None], *arguments: Any) -> None:
    """The same, in a thread that is left alone when it does not return. Raises TimeoutError: it did not."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call(*arguments)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LEFT_BEHIND_S)
    if thread.is_alive():
        raise TimeoutError(f"{call.__name__} has not returned after {LEFT_BEHIND_S:.0f} s")
    if errors:
        raise errors[0]
