"""A writer whose records are known by offset, a cluster that moves them about, and readers checked against the writer.

with UnionWorld(folder, store, seed) as world:
    start_again = world.kill_leader()
    world.batch_round()
    world.stream_round()
    start_again()
    world.settle()
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException, Message, Producer

from appliance.base.errors import KafkaError
from appliance.base.ids import TopicPartition
from appliance.base.object_store import ObjectStoreError
from appliance.client.client import Client
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.tiering.layout import CorruptObject
from appliance.tiering.manifest import CorruptManifest
from spark.offsets import from_json
from spark.options import LATEST, SourceOptions
from spark.partitions import SplitPartition
from spark.plan import DataLoss, Split
from spark.planning import plan_batch
from spark.reading import IncompleteSplit
from spark.stream import ApplianceStreamReader
from tests.support.replicated import ReplicatedCluster, until

TOPIC, PARTITIONS = "moving", 2
RECORD_BYTES = 2_000
RECORDS_PER_TRANSACTION = 40
PAUSE_S = 0.05
BYTES_PER_ROUND = 3 << 19
"""Of each partition: segments roll and expire in each round, and what a round finds outlives it, however slow it is."""
TOPIC_CONFIGS = {
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
    "min.insync.replicas": "1",
}
PROPERTIES = {
    "tiering.task.interval.ms": "100",
    "tiering.delete.delay.ms": "300",
    "tiering.retry.backoff.ms": "100",
    "tiering.retry.backoff.max.ms": "1000",
    "log.retention.check.interval.ms": "300",
    # Transactions go on while a broker is away.
    "transaction.state.log.min.isr": "1",
}
COLUMNS = ("value", "offset", "tier")
FAILURES = (
    DataLoss,
    IncompleteSplit,
    KafkaError,
    ConnectionLost,
    CallTimedOut,
    ObjectStoreError,
    CorruptObject,
    CorruptManifest,
)
"""How a read may end on a bad day. What it may not do is end well and lack a record."""

Rows = dict[TopicPartition, list[tuple[int, bytes]]]
Place = tuple[int, int]
"""Partition and offset."""


class Writer:
    """Transactions, every fourth of them aborted; what became of each record is known by its offset."""

    def __init__(self, servers: str, record_bytes: int) -> None:
        self.committed: dict[Place, bytes] = {}
        self.aborted: dict[Place, bytes] = {}
        self.undecided: dict[Place, bytes] = {}
        """Nobody said how their transaction ended."""
        self._servers = servers
        self._record_bytes = record_bytes
        self._left = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._thread.start()

    def go_on(self) -> None:
        """Write for one more round, beside whatever the caller does now."""
        with self._changed:
            self._left = BYTES_PER_ROUND * PARTITIONS // (RECORDS_PER_TRANSACTION * self._record_bytes)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping.set()
            self._changed.notify()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the writer has not ended"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            number = 0
            while not self._stopping.is_set():
                producer = self._producer()
                while self._may_go_on() and self._transaction(producer, number):
                    number += 1
                    self._stopping.wait(PAUSE_S)
                number += 1
        except BaseException as error:
            self._error = error

    def copy_of(self, rows: dict[Place, bytes]) -> dict[Place, bytes]:
        """Of one of the tables above, while it grows."""
        with self._changed:
            return dict(rows)

    def _note(self, table: dict[Place, bytes], rows: dict[Place, bytes]) -> None:
        with self._changed:
            table.update(rows)

    def _may_go_on(self) -> bool:
        """Once it may, or has to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._stopping.is_set())
            self._left -= 1
        return not self._stopping.is_set()

    def _producer(self) -> Producer:
        config = {"bootstrap.servers": self._servers, "transactional.id": "mover", "linger.ms": 5, "log_level": 0}
        producer = Producer({**config, "transaction.timeout.ms": 60_000})
        _until_done(lambda: producer.init_transactions(10))
        return producer

    def _transaction(self, producer: Producer, number: int) -> bool:
        """Whether the producer can go on."""
        rows: dict[Place, bytes] = {}

        def took(error: object, message: Message) -> None:
            if error is None:
                rows[message.partition(), message.offset()] = message.value()

        try:
            producer.begin_transaction()
            for record in range(RECORDS_PER_TRANSACTION):
                key = b"%d-%d " % (number, record)
                value = key + random.Random(key).randbytes(self._record_bytes)
                producer.produce(TOPIC, value, partition=(number + record) % PARTITIONS, on_delivery=took)
            producer.flush(60)
            if number % 4 == 3:
                _until_done(lambda: producer.abort_transaction(10))
                self._note(self.aborted, rows)
            else:
                _until_done(lambda: producer.commit_transaction(10))
                self._note(self.committed, rows)
        except KafkaException:
            self._note(self.undecided, rows)
            return False
        return True


def _until_done(action: Callable[[], object]) -> None:
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class UnionWorld:
    """Brokers that are killed, over a store with bad days; a writer; and rounds of readers.

    Args:
        folder, store: for the cluster; the store is a URL, or empty for a directory.
        seed: of what readers ask for and who is killed.
        brokers: processes.
        record_bytes: of each value.
        retention_bytes: of each partition; above `BYTES_PER_ROUND`.
    """

    def __init__(
        self,
        folder: Path,
        store: str,
        seed: int,
        *,
        brokers: int = 2,
        record_bytes: int = RECORD_BYTES,
        retention_bytes: int = 5 << 20,
    ) -> None:
        self.chance = random.Random(seed)
        self.reads: Counter[str] = Counter()
        """How rounds ended: `batch`, `stream`, or the name of an error."""
        self.tiers: Counter[str] = Counter()
        self.unknown: dict[Place, bytes] = {}
        """Rows that were read as committed before the writer knew that they are."""
        self._cluster = ReplicatedCluster(folder, brokers, PROPERTIES, store)
        self._cluster.create(TOPIC, PARTITIONS, brokers, **TOPIC_CONFIGS, **{"retention.bytes": str(retention_bytes)})
        self.client = Client(self._cluster.bootstrap_servers, timeout_ms=5_000)
        self.writer = Writer(self._cluster.bootstrap_servers, record_bytes)
        self._stream: ApplianceStreamReader | None = None
        self._position: dict[str, dict[str, int]] = {}

    def __enter__(self) -> UnionWorld:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self.writer.stop()
        finally:
            self.client.close()
            self._cluster.__exit__(kind, error, at)

    @property
    def servers(self) -> str:
        return self._cluster.bootstrap_servers

    def kill_leader(self) -> Callable[[], None]:
        """SIGKILL; what it returns starts that broker again."""
        victim = self._cluster.leader(TOPIC, self.chance.randrange(PARTITIONS))
        self._cluster.kill(victim)
        return lambda: self._cluster.start(victim)

    def starts(self) -> dict[int, int]:
        """Where the log of each partition starts now."""
        found = self.client.list_offsets({TopicPartition(TOPIC, number): -2 for number in range(PARTITIONS)})
        return {tp.partition: result.offset for tp, result in found.items()}

    def wait_until_records_expire(self) -> None:
        def expired() -> bool:
            self.writer.go_on()
            try:
                return min(self.starts().values()) > 0
            except (KafkaError, ConnectionLost, CallTimedOut):
                return False

        until(expired, "records to expire", 60)

    def batch_round(self) -> bool:
        """A batch: all there is or a part of it, read while everything goes on. Whether it came to its end."""
        self.writer.go_on()
        fail_on_data_loss = self.chance.random() < 0.7
        options = SourceOptions(
            self.servers,
            subscribe=(TOPIC,),
            read_committed=self.chance.random() < 0.7,
            fail_on_data_loss=fail_on_data_loss,
            max_records_per_partition=self.chance.choice([0, 0, 150]),
            split_bytes=self.chance.choice([64 << 20, 1 << 19]),
            request_timeout_ms=5_000,
        )
        try:
            plan = plan_batch(options)
            splits = list(plan.splits)
            self.chance.shuffle(splits)
            partitions = [SplitPartition(split, plan.object_store) for split in splits]
            rows = self._read(options, partitions, self.chance.choice([0, 0.3, 1.5]) / max(1, len(partitions)))
            self.check(rows, splits, options)
        except FAILURES as error:
            self.reads[type(error).__name__] += 1
            return False
        self.reads["batch"] += 1
        return True

    def stream_round(self) -> bool:
        """A trigger of a stream; one that fails is replayed the next time, with the same end."""
        self.writer.go_on()
        options = SourceOptions(self.servers, subscribe=(TOPIC,), read_committed=True, request_timeout_ms=5_000)
        if self.reads["DataLoss"]:
            # What is oldest is gone before it is read twice.
            options = dataclasses.replace(options, starting_offsets=LATEST)
        try:
            if self._stream is None:
                self._stream = ApplianceStreamReader(options, COLUMNS)
                self._position = self._stream.initialOffset()
            end = self._stream.latestOffset(self._position, self._stream.getDefaultReadLimit())
            edges: list[object] = []
            for attempt in range(2):
                partitions = list(self._stream.partitions(self._position, end))
                splits = [each.split for each in partitions if isinstance(each, SplitPartition)]
                rows = self._read(options, partitions, pause_s=0)
                self.check(rows, splits, options)
                covered = {tp: stop - from_json(self._position).get(tp, 0) for tp, stop in from_json(end).items()}
                assert sum(covered.values()) == sum(split.offsets for split in splits), f"attempt {attempt}: a gap"
                edges.append([(split.tp, split.start, split.end) for split in splits])
            assert edges[0] == edges[1], "a replayed batch has other tasks"
            self._position = end
        except DataLoss:
            # Retention was faster than this reader.
            self.reads["DataLoss"] += 1
            self._stream = None
            return False
        except FAILURES as error:
            self.reads[type(error).__name__] += 1
            return False
        self.reads["stream"] += 1
        return True

    def settle(self) -> None:
        """The writer ends, everything is whole again: then the last read is complete, and no row was made up."""
        self.writer.stop()
        until(lambda: self.batch_round() and self.stream_round(), "a read without failure", 90)
        made_up = [place for place, value in self.unknown.items() if not self._is_known(place, value)]
        assert not made_up, f"rows that nobody wrote or committed: {made_up[:5]}"

    def _is_known(self, place: Place, value: bytes) -> bool:
        return value in (self.writer.committed.get(place), self.writer.undecided.get(place))

    def _read(self, options: SourceOptions, partitions: Iterable[object], pause_s: float) -> Rows:
        rows: Rows = {}
        reader = ApplianceStreamReader(options, COLUMNS)
        for partition in partitions:
            time.sleep(pause_s)
            if not isinstance(partition, SplitPartition):
                continue
            found = rows.setdefault(partition.split.tp, [])
            for batch in reader.read(partition):
                found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                self.tiers.update(batch["tier"].to_pylist())
        return rows

    def check(self, rows: Rows, splits: list[Split], options: SourceOptions) -> None:
        """Each record that is known to be in the splits is in the rows, once, and nothing is that must not be.

        With failOnDataLoss=false records may lack that lie below the log's start by now.
        """
        starts = dict.fromkeys(range(PARTITIONS), 0) if options.fail_on_data_loss else self.starts()
        writer = self.writer
        for number in range(PARTITIONS):
            tp = TopicPartition(TOPIC, number)
            found = dict(rows.get(tp, []))
            assert len(found) == len(rows.get(tp, [])), f"{tp}: a row twice"
            mine = [(split.start, split.end) for split in splits if split.tp == tp]
            assert all(any(low <= offset < high for low, high in mine) for offset in found), f"{tp}: outside"
            wanted = writer.copy_of(writer.committed)
            if not options.read_committed:
                wanted |= writer.copy_of(writer.aborted)
            for (partition, offset), value in wanted.items():
                if partition == number and offset >= starts[number] and any(low <= offset < high for low, high in mine):
                    assert found.get(offset) == value, f"{tp}: offset {offset} of {mine} is missing"
            for offset, value in found.items():
                place = (number, offset)
                if options.read_committed:
                    assert place not in writer.aborted, f"{tp}: offset {offset} was aborted"
                    if place not in writer.committed:
                        self.unknown[place] = value
                elif place in wanted:
                    assert wanted[place] == value, f"{tp}: another value at {offset}"
