"""A broker whose disk fails lets others lead, and comes back as a follower."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.replicated import ReplicatedCluster, until

BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    with ReplicatedCluster(tmp_path_factory.mktemp("disks")) as running:
        yield running


def produce(cluster: ReplicatedCluster, topic: str, values: list[bytes]) -> None:
    """All of them are acknowledged by all who are in sync."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(60) == 0 and failed == []


def logs_of(cluster: ReplicatedCluster, topic: str) -> set[bytes]:
    name = f"{0:020d}.log"
    return {(cluster.folder / f"broker-{n}" / f"{topic}-0" / name).read_bytes() for n in BROKERS}


def test_others_lead_what_lies_on_a_failed_disk(cluster: ReplicatedCluster) -> None:
    cluster.create("failing", **{"min.insync.replicas": "2"})
    produce(cluster, "failing", [b"before %d" % number for number in range(10)])
    leader = cluster.leader("failing")
    folder = cluster.folder / f"broker-{leader}"
    folder.rename(cluster.folder / "away")
    others = [broker_id for broker_id in BROKERS if broker_id != leader]
    assert cluster.leader("failing", other_than=leader) in others
    cluster.wait_for_isr("failing", *others)
    produce(cluster, "failing", [b"without %d" % number for number in range(10)])
    assert cluster.brokers[leader].process.poll() is None, "the broker itself goes on"
    cluster.kill(leader)
    (cluster.folder / "away").rename(folder)
    cluster.start(leader)
    cluster.wait_for_isr("failing", *BROKERS)
    (log,) = logs_of(cluster, "failing")
    assert b"before 9" in log and b"without 9" in log


def test_a_log_that_is_gone_is_copied_again_and_never_led_from(cluster: ReplicatedCluster) -> None:
    cluster.create("gone", **{"min.insync.replicas": "2"})
    produce(cluster, "gone", [b"kept %d" % number for number in range(10)])
    cluster.wait_for_isr("gone", *BROKERS)
    victim = cluster.leader("gone")
    cluster.kill(victim)
    shutil.rmtree(cluster.folder / f"broker-{victim}" / "gone-0")
    cluster.start(victim)
    cluster.wait_for_isr("gone", *BROKERS)
    until(lambda: len(logs_of(cluster, "gone")) == 1, "the logs to be the same")
    (log,) = logs_of(cluster, "gone")
    assert b"kept 0" in log and b"kept 9" in log


@pytest.mark.parametrize("died", [0, 1], ids=["first", "second, still eligible"])
def test_a_log_that_is_gone_is_not_begun_anew_when_its_broker_comes_first_after_all_were_gone(
    cluster: ReplicatedCluster, died: int
) -> None:
    topic = f"first-{died}"
    cluster.create(topic, **{"min.insync.replicas": "2"})
    produce(cluster, topic, [b"kept %d" % number for number in range(10)])
    cluster.wait_for_isr(topic, *BROKERS)
    victim, *others = BROKERS
    order = [*others[:died], victim, *others[died:]]
    for number, broker_id in enumerate(order):
        cluster.kill(broker_id)
        if order[number + 1 :]:
            cluster.wait_for_isr(topic, *order[number + 1 :])
    shutil.rmtree(cluster.folder / f"broker-{victim}" / f"{topic}-0")
    cluster.start(victim)
    # It serves what it has, and this partition is led by nobody until somebody comes who has it.
    until(lambda: (state := cluster.state(topic)) is not None and state.isrs, "Metadata of a broker that is alone")
    state = cluster.state(topic)
    assert state.leader == -1 and victim not in state.isrs
    for broker_id in others:
        cluster.start(broker_id)
    cluster.wait_for_isr(topic, *BROKERS)
    until(lambda: len(logs_of(cluster, topic)) == 1, "the logs to be the same")
    (log,) = logs_of(cluster, topic)
    assert b"kept 0" in log and b"kept 9" in log
