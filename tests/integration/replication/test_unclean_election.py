"""A leader dies alone in the ISR, where its topic allows unclean elections: the survivor with the longest log leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition

from tests.support.chaos import ChaosCluster
from tests.support.replicated import until

TOPIC = "lossy"


def produce(cluster: ChaosCluster, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0


def elect(cluster: ChaosCluster) -> None:
    """As an operator does, once nobody leads."""
    until(lambda: (state := cluster.state(TOPIC)) is not None and state.leader == -1, "the partition to be offline")
    partition = TopicPartition(TOPIC, 0)
    elected = cluster.admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(30)
    assert elected[partition] is None


@pytest.mark.parametrize("by_operator", [False, True], ids=["by the topic", "by an operator"])
def test_the_longest_log_leads_although_another_is_first(tmp_path: Path, by_operator: bool) -> None:
    allowed = {"unclean.leader.election.enable": str(not by_operator).lower(), "min.insync.replicas": "1"}
    with ChaosCluster(tmp_path, properties={"replica.lag.time.max.ms": "1000"}) as cluster:
        cluster.create(TOPIC, **allowed)
        leader = cluster.leader(TOPIC)
        short, long = (member for member in cluster.state(TOPIC).replicas if member != leader)
        cluster.wait_for_isr(TOPIC, 1, 2, 3)
        produce(cluster, [b"everywhere"] * 10)
        cluster.links.cut(f"broker-{short}", f"broker-{leader}")
        produce(cluster, [b"on two"] * 10)
        cluster.wait_for_isr(TOPIC, leader, long)
        cluster.links.cut(f"broker-{long}", f"broker-{leader}")
        produce(cluster, [b"on one"] * 10)
        cluster.wait_for_isr(TOPIC, leader)
        cluster.kill(leader)
        if by_operator:
            elect(cluster)
        assert cluster.leader(TOPIC, other_than=leader) == long
        assert cluster.read(TOPIC, 1) == [[b"everywhere"] * 10 + [b"on two"] * 10]
        cluster.links.heal()
        cluster.start(leader)
        cluster.wait_for_isr(TOPIC, 1, 2, 3)
