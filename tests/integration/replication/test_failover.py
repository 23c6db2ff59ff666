"""Three brokers, replication factor 3: what is acknowledged outlives any one of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.replicated import ReplicatedCluster, until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    folder: Path = tmp_path_factory.mktemp("replicated")
    with ReplicatedCluster(folder) as running:
        yield running


def producer_of(cluster: ReplicatedCluster, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2, **config})


def read_all(cluster: ReplicatedCluster, topic: str, partitions: int = 1, **config: Any) -> list[bytes]:
    """Every record up to the high watermarks, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 2,
            **config,
        }
    )
    values: list[bytes] = []
    try:
        for partition in range(partitions):
            place = TopicPartition(topic, partition)
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([TopicPartition(topic, partition, 0)])

            read_to = 0

            def read_more(end: int = end) -> bool:
                nonlocal read_to
                for message in consumer.consume(1_000, 0.5):
                    assert message.error() is None, message.error()
                    values.append(message.value())
                    read_to = message.offset() + 1
                return read_to >= end

            if end:
                until(read_more, f"{end} records of {topic}-{partition}")
        return values
    finally:
        consumer.close()


class Load:
    """Numbered records, one after the other, from a thread, until told to end."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.refused: list[KafkaError] = []
        self.sent = 0
        self._producer = producer
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            value = str(self.sent).encode()
            self.sent += 1
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.refused.append(error)

    def wait_for_more(self, count: int = 50) -> None:
        """Let so many more be acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, f"{count} more acknowledged records")

    def end(self) -> None:
        self._ending.set()
        self._thread.join(10)
        assert self._producer.flush(30) == 0


def test_nothing_acknowledged_is_lost_or_doubled_when_the_leader_is_killed(cluster: ReplicatedCluster) -> None:
    cluster.create("kills", **{"min.insync.replicas": "2"})
    load = Load(producer_of(cluster, **{"enable.idempotence": True}), "kills")
    load.wait_for_more()
    for _ in range(3):
        victim = cluster.leader("kills")
        cluster.kill(victim)
        cluster.leader("kills", other_than=victim)
        load.wait_for_more()
        cluster.start(victim)
        cluster.wait_for_isr("kills", 1, 2, 3)
    load.end()
    values = read_all(cluster, "kills")
    assert load.refused == []
    assert [value for value, count in Counter(values).items() if count > 1] == [], "doubled"
    assert values == [str(number).encode() for number in range(load.sent)], "in the order in which they were sent"


def test_below_min_insync_replicas_writes_are_refused_and_come_back_by_themselves(cluster: ReplicatedCluster) -> None:
    cluster.create("minority", **{"min.insync.replicas": "2"})
    producer = producer_of(cluster, **{"acks": "all", "retries": 0, "message.timeout.ms": 20_000})
    outcomes: list[KafkaError | None] = []

    def produce() -> KafkaError | None:
        outcomes.clear()
        producer.produce("minority", b"x", partition=0, on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(25)
        return outcomes[0]

    assert produce() is None
    leader = cluster.leader("minority")
    others = [broker_id for broker_id in (1, 2, 3) if broker_id != leader]
    for broker_id in others:
        cluster.kill(broker_id)
    cluster.wait_for_isr("minority", leader)
    refused = produce()
    assert refused is not None and refused.code() in (
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    )
    assert read_all(cluster, "minority") == [b"x"], "reads go on"
    cluster.start(others[0])
    until(lambda: produce() is None, "writes to be taken again")
    cluster.start(others[1])
    cluster.wait_for_isr("minority", 1, 2, 3)


def test_a_follower_that_was_away_catches_up_before_it_is_in_sync_again(cluster: ReplicatedCluster) -> None:
    cluster.create("away")
    leader = cluster.leader("away")
    away = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
    cluster.kill(away)
    producer = producer_of(cluster, acks="all")
    for number in range(2_000):
        producer.produce("away", b"%d" % number * 100, partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0
    cluster.start(away)
    cluster.wait_for_isr("away", 1, 2, 3)
    # The others go: it alone has to have everything.
    for broker_id in (1, 2, 3):
        if broker_id != away:
            cluster.kill(broker_id)
    cluster.wait_for_leader("away", away)
    assert len(read_all(cluster, "away")) == 2_000
    for broker_id in (1, 2, 3):
        if broker_id != away:
            cluster.start(broker_id)
    cluster.wait_for_isr("away", 1, 2, 3)


def test_a_leader_that_was_paused_follows_the_one_that_took_its_place(cluster: ReplicatedCluster) -> None:
    cluster.create("paused", **{"min.insync.replicas": "2"})
    load = Load(producer_of(cluster, **{"enable.idempotence": True, "socket.timeout.ms": 5_000}), "paused")
    load.wait_for_more()
    frozen = cluster.leader("paused")
    cluster.pause(frozen)
    cluster.leader("paused", other_than=frozen)
    load.wait_for_more()
    cluster.resume(frozen)
    cluster.wait_for_isr("paused", 1, 2, 3)
    load.wait_for_more()
    load.end()
    assert load.refused == []
    assert read_all(cluster, "paused") == [str(number).encode() for number in range(load.sent)]
