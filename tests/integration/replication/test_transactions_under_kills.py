"""Brokers are killed under a client that consumes, transforms and produces in transactions: each record counts once.

All topics have three replicas, those of the coordinators too. A killed broker is started again at once, as `appliance
up` does it; the next dies when all replicas are in sync.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from tests.support.copier import QUICK_TO_RETRY, Copier
from tests.support.java_tools import RunningTool
from tests.support.replicated import ReplicatedCluster, until

BROKERS = (1, 2, 3)
PARTITIONS = 2
GROUP = "copier"
AHEAD = 200
"""So many records wait to be copied."""
PATIENCE_S = 60.0
COORDINATORS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
ALL_TOPICS = {"source": PARTITIONS, "sink": PARTITIONS, "__consumer_offsets": 3, "__transaction_state": 3}


def numbers(partition: int, fed: int) -> list[bytes]:
    """What was fed to a partition."""
    return [b"%d" % number for number in range(partition, fed, PARTITIONS)]


def committed(cluster: ReplicatedCluster, partition: int) -> list[bytes | None]:
    """Values in the sink, as a reader of committed records sees them."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused", "log_level": 0}
    options = {"isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**servers, **options})
    consumer.assign([TopicPartition("sink", partition, 0)])
    values: list[bytes | None] = []

    def read_to_the_end() -> bool:
        for message in consumer.consume(1_000, 1.0):
            if message.error() is not None:
                return True
            values.append(message.value())
        return False

    until(read_to_the_end, "the end of the sink", PATIENCE_S)
    consumer.close()
    return values


def group_offsets(cluster: ReplicatedCluster) -> dict[int, int]:
    asked = ConsumerGroupTopicPartitions(GROUP)
    found = cluster.admin.list_consumer_group_offsets([asked])[GROUP].result(PATIENCE_S)
    return {each.partition: each.offset for each in found.topic_partitions}


def in_sync(cluster: ReplicatedCluster) -> bool:
    """Whether all replicas of all topics are."""
    for topic, partitions in ALL_TOPICS.items():
        for number in range(partitions):
            state = cluster.state(topic, number)
            if state is None or sorted(state.isrs) != list(BROKERS):
                return False
    return True


class Days:
    """A cluster, a feeder of numbered records, and the copier."""

    def __init__(self, cluster: ReplicatedCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        for topic in ("source", "sink"):
            cluster.create(topic, PARTITIONS, len(BROKERS), **{"min.insync.replicas": "2"})
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self._feeder = Producer({**servers, **QUICK_TO_RETRY, "enable.idempotence": True})
        self.fed = 0
        self.copier = Copier(cluster.bootstrap_servers, "source", "sink", PARTITIONS, GROUP)
        self.copier.start()

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Feed until the condition holds."""

        def look() -> object:
            self.copier.check()
            while self.fed < self.copier.copied + AHEAD:
                self._feeder.produce("source", b"%d" % self.fed, partition=self.fed % PARTITIONS)
                self.fed += 1
            self._feeder.poll(0)
            return condition()

        try:
            until(look, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.copier.state}") from error

    def copy(self, count: int) -> None:
        goal = self.copier.copied + count
        self.wait(lambda: self.copier.copied >= goal, f"{count} records to be copied")

    def kill(self, broker: int) -> None:
        self.copy(self.random.randint(1, 300))
        self.cluster.kill(broker)
        starting = self.cluster.begin(broker)
        waiting = threading.Thread(target=starting.wait_until_ready)
        waiting.start()
        self.wait(lambda: not waiting.is_alive(), f"broker {broker} to be back")
        self.copy(100)
        self.wait(lambda: in_sync(self.cluster), "all replicas to be in sync")

    def end(self) -> None:
        """Everything that was fed is copied, once and in order, and the group stands behind it."""
        assert self._feeder.flush(PATIENCE_S) == 0
        try:
            until(lambda: sum(group_offsets(self.cluster).values()) >= self.fed, "all to be copied", PATIENCE_S)
        finally:
            self.copier.stop()
        for partition in range(PARTITIONS):
            assert committed(self.cluster, partition) == numbers(partition, self.fed), self.copier.state
        assert group_offsets(self.cluster) == {
            partition: len(numbers(partition, self.fed)) for partition in range(PARTITIONS)
        }


def run(folder: Path, kills: int) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"CHAOS_SEED={seed}")
    with ReplicatedCluster(folder, len(BROKERS), COORDINATORS) as cluster:
        days = Days(cluster, seed)
        days.copy(100)
        for number in range(kills):
            days.kill(BROKERS[number % len(BROKERS)])
        days.end()
        print(days.copier.state)


@pytest.mark.timeout(240)
def test_each_record_counts_once_although_every_broker_is_killed(tmp_path: Path) -> None:
    run(tmp_path, kills=3)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_record_counts_once_after_twenty_kills(tmp_path: Path) -> None:
    run(tmp_path, kills=20)


@pytest.mark.java
@pytest.mark.timeout(240)
def test_javas_copier_copies_each_record_once_although_every_broker_is_killed(tmp_path: Path) -> None:
    """Its producer gets a new epoch with each end of a transaction (KIP-890), which librdkafka's does not."""
    count = 2_000
    with ReplicatedCluster(tmp_path, len(BROKERS), COORDINATORS) as cluster:
        for topic in ("source", "sink"):
            cluster.create(topic, PARTITIONS, len(BROKERS), **{"min.insync.replicas": "2"})
        feeder = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        for value in numbers(0, PARTITIONS * count):
            feeder.produce("source", value, partition=0)
        assert feeder.flush(PATIENCE_S) == 0
        where = ("--broker-list", cluster.bootstrap_servers, "--input-topic", "source", "--input-partition", "0")
        what = ("--output-topic", "sink", "--consumer-group", GROUP, "--transactional-id", GROUP)
        how = ("--transaction-size", "5", "--max-messages", str(count), "--transaction-timeout", "10000")
        copier = RunningTool("TransactionalMessageCopier", *where, *what, *how, "--enable-random-aborts")
        try:
            for turn, broker in enumerate(BROKERS):
                wait_for_copier(
                    copier, lambda goal=turn * 500 + 200: processed(copier) >= goal or copier.code is not None
                )
                cluster.kill(broker)
                cluster.start(broker)
                until(lambda: in_sync(cluster), "all replicas to be in sync", PATIENCE_S)
            wait_for_copier(copier, lambda: copier.code is not None)
            assert copier.code == 0, copier.errors
        finally:
            copier.kill()
        assert committed(cluster, 0) + committed(cluster, 1) == numbers(0, PARTITIONS * count)
        assert group_offsets(cluster) == {0: count}


def wait_for_copier(copier: RunningTool, condition: Callable[[], bool]) -> None:
    try:
        until(condition, "the copier", PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {copier.code}, {copier.events[-3:]}, {copier.errors[-3_000:]}") from error


def processed(copier: RunningTool) -> int:
    return max((each.get("totalProcessed", 0) for each in list(copier.events)), default=0)
