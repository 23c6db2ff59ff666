"""Brokers are killed under a client that consumes, transforms and produces in transactions: each record counts once.

All topics have three replicas, those of the coordinators too. A killed broker is started again at once, as `appliance
up` does it; the next dies when all replicas are in sync. The long forms choose whom they kill by what it does just
then: it coordinates the transactions or the group, or leads a partition that is read or written.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from appliance.base.errors import ErrorCode
from appliance.client.connection import CallTimedOut, Connection, ConnectionLost
from appliance.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from appliance.wire.messages.find_coordinator import FindCoordinatorRequest
from appliance.wire.messages.list_transactions import ListTransactionsRequest
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
GROUP_KEY, TRANSACTION_KEY = 0, 1
LONG = 20
OVER = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
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


def coordinator(cluster: ReplicatedCluster, key_type: int) -> int:
    """Of the group, or of the transactional id, which has the same name."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[GROUP])

    def ask() -> int:
        for port in cluster.ports.values():
            try:
                with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
                    (found,) = connection.call(request, 4).coordinators
            except (ConnectionLost, CallTimedOut):
                continue
            if found.error_code == ErrorCode.NONE:
                return found.node_id
        return 0

    return until(ask, "a coordinator", PATIENCE_S)


ROLES: dict[str, Callable[[ReplicatedCluster], int]] = {
    "coordinator of transactions": lambda cluster: coordinator(cluster, TRANSACTION_KEY),
    "coordinator of the group": lambda cluster: coordinator(cluster, GROUP_KEY),
    "leader of the source": lambda cluster: cluster.leader("source"),
    "leader of the sink": lambda cluster: cluster.leader("sink", 1),
}


def victim(cluster: ReplicatedCluster, chance: random.Random) -> int:
    """A broker that does something, by chance."""
    role = chance.choice(list(ROLES))
    broker = ROLES[role](cluster)
    print(f"broker {broker} is killed, {role}")
    return broker


def still_open(cluster: ReplicatedCluster) -> list[str]:
    """Transactions that some coordinator has not brought to an end, and those of which some leader has not heard it."""
    found = []
    for broker, port in cluster.ports.items():
        topics = [
            TopicRequest(name=topic, partition_indexes=led)
            for topic, count in ALL_TOPICS.items()
            if (led := [number for number in range(count) if cluster.leader(topic, number) == broker])
        ]
        with Connection("127.0.0.1", port, timeout_ms=10_000) as connection:
            listed = connection.call(ListTransactionsRequest(), 1)
            described = connection.call(DescribeProducersRequest(topics=topics), 0)
        if listed.error_code != ErrorCode.NONE:
            found.append(f"broker {broker}: {ErrorCode(listed.error_code).name}")
        found += [str(each) for each in listed.transaction_states if each.transaction_state not in OVER]
        for topic in described.topics:
            for partition in topic.partitions:
                if partition.error_code != ErrorCode.NONE:
                    found.append(f"{topic.name}: {partition}")
                began = [each for each in partition.active_producers if each.current_txn_start_offset >= 0]
                found += [f"{topic.name}-{partition.partition_index}: {each}" for each in began]
    return found


def nothing_hangs(cluster: ReplicatedCluster) -> None:
    until(lambda: not still_open(cluster), "all transactions to be over", PATIENCE_S)


class Days:
    """A cluster, a feeder of numbered records, and the copier."""

    def __init__(self, cluster: ReplicatedCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.random = chance
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
        nothing_hangs(self.cluster)
        for partition in range(PARTITIONS):
            assert committed(self.cluster, partition) == numbers(partition, self.fed), self.copier.state
        assert group_offsets(self.cluster) == {
            partition: len(numbers(partition, self.fed)) for partition in range(PARTITIONS)
        }


def seeded() -> random.Random:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"CHAOS_SEED={seed}")
    return random.Random(seed)


def librdkafka_copies(folder: Path, kills: int) -> None:
    with ReplicatedCluster(folder, len(BROKERS), COORDINATORS) as cluster:
        days = Days(cluster, seeded())
        days.copy(100)
        for number in range(kills):
            days.kill(victim(cluster, days.random) if kills >= LONG else BROKERS[number % len(BROKERS)])
        days.end()
        print(days.copier.state)


@pytest.mark.timeout(240)
def test_each_record_counts_once_although_every_broker_is_killed(tmp_path: Path) -> None:
    librdkafka_copies(tmp_path, kills=3)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_each_record_counts_once_after_twenty_kills(tmp_path: Path) -> None:
    librdkafka_copies(tmp_path, kills=LONG)


@pytest.mark.java
@pytest.mark.timeout(240)
def test_javas_copier_copies_each_record_once_although_every_broker_is_killed(tmp_path: Path) -> None:
    """Its producer gets a new epoch with each end of a transaction (KIP-890), which librdkafka's does not."""
    java_copies(tmp_path, kills=3)


@pytest.mark.java
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_javas_copier_copies_each_record_once_after_twenty_kills(tmp_path: Path) -> None:
    java_copies(tmp_path, kills=LONG)


def java_copies(folder: Path, kills: int) -> None:
    chance = seeded()
    count = 500 * (kills + 1)
    with ReplicatedCluster(folder, len(BROKERS), COORDINATORS) as cluster:
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
            for turn in range(kills):
                goal = turn * 500 + 200
                wait_for_copier(copier, lambda goal=goal: processed(copier) >= goal or copier.code is not None)
                broker = victim(cluster, chance) if kills >= LONG else BROKERS[turn % len(BROKERS)]
                cluster.kill(broker)
                cluster.start(broker)
                until(lambda: in_sync(cluster), "all replicas to be in sync", PATIENCE_S)
            wait_for_copier(copier, lambda: copier.code is not None)
            assert copier.code == 0, copier.errors
        finally:
            copier.kill()
        nothing_hangs(cluster)
        assert committed(cluster, 0) + committed(cluster, 1) == numbers(0, PARTITIONS * count)
        assert group_offsets(cluster) == {0: count}


def wait_for_copier(copier: RunningTool, condition: Callable[[], bool]) -> None:
    try:
        until(condition, "the copier", PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}: {copier.code}, {copier.events[-3:]}, {copier.errors[-3_000:]}") from error


def processed(copier: RunningTool) -> int:
    return max((each.get("totalProcessed", 0) for each in list(copier.events)), default=0)
