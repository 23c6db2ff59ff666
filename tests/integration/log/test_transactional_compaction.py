"""A compacted topic with transactions, cleaned by Apache Kafka and by us: readers of both see the same.

Every record is a batch of its own and has the same size on both, so segments end at the same offsets, and what must be
left can be told: below the point of cleaning the newest committed value of each key, above it everything.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from appliance.base import ids
from appliance.base.disk import SystemDisk
from appliance.log.checkpoints import CorruptCheckpoint, read_offsets
from tests.support.broker import running_cluster
from tests.support.kafka_peer import KafkaPeer
from tests.support.replicated import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

TOPIC = "ledger"
TIMEOUT_S = 60.0
VALUE_BYTES = 30_000
KEYS = 25
TURNS = 8
CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
}
NEVER, ALWAYS = "1.0", "0.0001"
CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": NEVER,
    "segment.bytes": str(1 << 20),
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}

Seen = list[tuple[int, bytes, bytes]]
"""Offset, key and the beginning of the value, which is unlike all others."""


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes
    kept: bool


class Ledger:
    """Two transactional producers and a plain one take turns; a third has a transaction open when all is cleaned."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.rows: list[Written] = []
        self._random = random.Random(11)
        self._number = 0
        self._markers = 0
        plain = {"isolation.level": "read_uncommitted", "group.id": "unused", "log_level": 0}
        self._looker = Consumer({"bootstrap.servers": servers, **plain})
        self._plain = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._transactional = [self._begun(name) for name in ("a", "b", "c")]

    def _begun(self, name: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": name, "linger.ms": 0})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _write(self, producer: Producer, *, kept: bool) -> None:
        key = b"key-%02d" % self._random.randrange(KEYS)
        value = (b"%06d " % self._number) + self._random.randbytes(VALUE_BYTES)
        self._number += 1
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            assert error is None, error
            offsets.append(message.offset())

        producer.produce(TOPIC, value, key=key, partition=0, on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
        self.rows.append(Written(offsets[0], key, value[:6], kept))

    def write_transactions(self) -> None:
        """Outcomes in all combinations."""
        first, second, _ = self._transactional
        for number in range(TURNS):
            outcomes = (number % 2 == 0, number % 4 < 2)
            first.begin_transaction()
            second.begin_transaction()
            for _ in range(6):
                self._write(first, kept=outcomes[0])
                self._write(second, kept=outcomes[1])
                self._write(self._plain, kept=True)
            for producer, kept in zip((first, second), outcomes, strict=True):
                self._end(producer, commit=kept)

    def _end(self, producer: Producer, *, commit: bool) -> None:
        """A client hears of the end before its marker is written: wait for that, so that offsets are the same."""
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
        self._markers += 1
        end = len(self.rows) + self._markers
        place = TopicPartition(TOPIC, 0)
        until(lambda: self._looker.get_watermark_offsets(place, TIMEOUT_S)[1] == end, "the marker", TIMEOUT_S)

    def leave_open(self, count: int, *, to_be_kept: bool) -> None:
        """The third producer's transaction, with records of others behind it."""
        third = self._transactional[2]
        third.begin_transaction()
        for _ in range(count):
            self._write(third, kept=to_be_kept)
        for _ in range(80):
            self._write(self._plain, kept=True)

    def end_open(self, *, commit: bool) -> None:
        self._end(self._transactional[2], commit=commit)
        for _ in range(40):
            self._write(self._plain, kept=True)


def expected(rows: list[Written], cleaned_to: int, stable_to: int) -> Seen:
    """What a reader of committed records sees."""
    newest = {row.key: row.offset for row in rows if row.kept and row.offset < cleaned_to}
    return [
        (row.offset, row.key, row.value)
        for row in rows
        if row.kept and row.offset < stable_to and (row.offset >= cleaned_to or newest[row.key] == row.offset)
    ]


class Server(NamedTuple):
    servers: str
    checkpoint: Path

    def cleaned_to(self) -> int:
        try:
            return read_offsets(SystemDisk(), self.checkpoint).get(ids.TopicPartition(TOPIC, 0), 0)
        except (CorruptCheckpoint, FileNotFoundError):
            return 0

    def set_ratio(self, ratio: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        entry = ConfigEntry("min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)

    def clean(self, above: int) -> int:
        """Let the cleaner run until it goes no further; how far that is, which must be above the number."""
        self.set_ratio(ALWAYS)
        until(lambda: self.cleaned_to() > above, "the cleaner", TIMEOUT_S)
        reached, since = self.cleaned_to(), time.monotonic()
        while time.monotonic() - since < 1.5:
            time.sleep(0.1)
            if (now := self.cleaned_to()) != reached:
                reached, since = now, time.monotonic()
        self.set_ratio(NEVER)
        return reached

    def read(self, isolation: str, offset: int = 0) -> Seen:
        options = {"enable.partition.eof": True, "enable.auto.commit": False, "check.crcs": True, "group.id": "unused"}
        consumer = Consumer({"bootstrap.servers": self.servers, "isolation.level": isolation, **options})
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        seen: Seen = []
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF
                    return seen
                seen.append((message.offset(), message.key(), message.value()[:6]))
        finally:
            consumer.close()

    def read_with_kafka_python(self) -> Seen:
        reader = KafkaConsumer(
            bootstrap_servers=self.servers, isolation_level="read_committed", consumer_timeout_ms=2_000
        )
        place = KafkaPythonPartition(TOPIC, 0)
        reader.assign([place])
        reader.seek_to_beginning(place)
        seen = [(each.offset, each.key, each.value[:6]) for each in reader]
        reader.close()
        return seen


@contextmanager
def kafka(folder: Path) -> Iterator[Server]:
    with KafkaPeer(folder=folder, properties=CLEANER) as peer:
        yield Server(peer.bootstrap_servers, folder / "data" / "cleaner-offset-checkpoint")


@contextmanager
def ours(folder: Path) -> Iterator[Server]:
    with running_cluster(folder, properties=CLEANER) as cluster:
        yield Server(cluster.bootstrap_servers, cluster.data_dir(1) / "cleaner-offset-checkpoint")


class Round(NamedTuple):
    """What was seen after a cleaning."""

    cleaned_to: int
    committed: Seen
    uncommitted: Seen
    rows: list[Written]


def live(server: Server) -> list[Round]:
    """Both rounds; a reader that sees anything but what was committed fails at once."""
    admin = AdminClient({"bootstrap.servers": server.servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(TIMEOUT_S)
    ledger = Ledger(server.servers)
    rounds: list[Round] = []
    for commits in (True, False):
        ledger.write_transactions()
        first_open = ledger.rows[-1].offset + 1
        ledger.leave_open(2, to_be_kept=commits)
        rounds.append(look(server, ledger, rounds, first_open))
        ledger.end_open(commit=commits)
        rounds.append(look(server, ledger, rounds, 1 << 60))
    return rounds


def look(server: Server, ledger: Ledger, rounds: list[Round], stable_to: int) -> Round:
    reached = server.clean(rounds[-1].cleaned_to if rounds else 0)
    committed = server.read("read_committed")
    # What is open has a first offset that may be a little above: markers of those before come in between.
    stable = next((row.offset for row in ledger.rows if row.offset >= stable_to), stable_to)
    assert committed == expected(ledger.rows, reached, stable)
    assert server.read_with_kafka_python() == committed
    middle = committed[len(committed) // 2][0]
    assert server.read("read_committed", middle) == [row for row in committed if row[0] >= middle]
    return Round(reached, committed, server.read("read_uncommitted"), list(ledger.rows))


def test_readers_of_committed_records_see_the_same_after_cleaning(tmp_path: Path) -> None:
    with kafka(tmp_path / "kafka") as server:
        theirs = live(server)
    (tmp_path / "ours").mkdir()
    with ours(tmp_path / "ours") as server:
        mine = live(server)
    for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        assert one.rows == other.rows
        assert one.cleaned_to == other.cleaned_to, f"round {number}"
        assert one.committed == other.committed, f"round {number}"
        assert one.uncommitted == other.uncommitted, f"round {number}"
    assert len(theirs[-1].committed) < len(theirs[-1].rows) / 3, "cleaning has removed little"
