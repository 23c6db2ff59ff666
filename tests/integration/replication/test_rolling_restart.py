"""Brokers and controllers are restarted one after the other, as an operator would: clients notice nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.chaos import PARTITIONS, TOPIC_CONFIGS, ChaosCluster, count, stock_loads, wait_for_progress
from tests.support.loads import check
from tests.support.replicated import until

pytestmark = pytest.mark.timeout(180)

ONE_TRY = {"acks": "all", "retries": 0, "message.timeout.ms": 20_000}
TOO_FEW = (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

FOLLOWERS_KNOW_S = 2.0
"""Longer than `replica.fetch.wait.max.ms`. Alone, a leader cannot raise the high watermark any more (KIP-966)."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    with ChaosCluster(tmp_path_factory.mktemp("operations")) as running:
        yield running


def test_a_rolling_restart_under_load_fails_no_record_and_loses_none(cluster: ChaosCluster) -> None:
    topics = ["rolled-idempotent", "rolled-plain", "rolled-python"]
    for topic in topics:
        cluster.create(topic, PARTITIONS, **TOPIC_CONFIGS)
    loads = stock_loads(cluster.bootstrap_servers, topics)
    for load in loads:
        load.thread.start()
    try:
        wait_for_progress(loads)
        for broker_id in sorted(cluster.brokers):
            cluster.stop(broker_id)
            wait_for_progress(loads)
            cluster.start(broker_id)
            for topic in topics:
                for partition in range(PARTITIONS):
                    cluster.wait_for_isr(topic, 1, 2, 3, partition=partition)
        for number in (1, 2):
            cluster.controllers[number].stop()
            wait_for_progress(loads)
            cluster.begin_controller(number)
    finally:
        for load in loads:
            load.stopping.set()
    for load in loads:
        load.stop()
        assert load.errors == [], f"{load.name}: {load.errors[:3]}"
        assert count(load) == load.sent
        check(load, cluster.read(load.topic, PARTITIONS))


def test_without_a_majority_writes_are_refused_reads_go_on_and_all_comes_back_by_itself(cluster: ChaosCluster) -> None:
    cluster.create("few", **{"min.insync.replicas": "2"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2, **ONE_TRY})
    outcomes: list[KafkaError | None] = []

    def produce(value: bytes) -> KafkaError | None:
        outcomes.clear()
        producer.produce("few", value, partition=0, on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(25)
        return outcomes[0]

    assert produce(b"all three") is None
    first, second, last = (cluster.leader("few"), *(b for b in (1, 2, 3) if b != cluster.leader("few")))
    # A minority: the others go on without it.
    cluster.kill(first)
    cluster.leader("few", other_than=first)
    until(lambda: produce(b"two") is None, "writes to be taken by two of three")
    # The majority: one is left. Followers learn of a new high watermark with their next fetch.
    time.sleep(FOLLOWERS_KNOW_S)
    cluster.kill(second)
    cluster.wait_for_isr("few", last)
    refused = produce(b"one")
    assert refused is not None and refused.code() in TOO_FEW, refused
    assert set(cluster.read("few", 1)[0]) == {b"all three", b"two"}, "reads go on, up to what is committed"
    cluster.begin(first)
    cluster.begin(second)
    until(lambda: produce(b"again") is None, "writes to be taken again")
    cluster.wait_for_isr("few", 1, 2, 3)
    values = cluster.read("few", 1)[0]
    assert values[0] == b"all three" and b"two" in values and values[-1] == b"again"
