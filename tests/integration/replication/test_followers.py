"""What followers do besides copying: they cut off what the new leader never had, serve readers of their rack, and are
shown by Kafka's own tool."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from appliance.base.ids import ZERO_UUID
from appliance.client.connection import Connection
from tests.support.java_tools import tool
from tests.support.replicated import ReplicatedCluster, until
from tests.support.requests import fetch_request, partitions_of

WAITING_FETCHES_S = 2.0
"""Longer than `replica.fetch.wait.max.ms`: afterwards no fetch of a paused follower waits at its leader."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedCluster]:
    properties = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "offsets.topic.replication.factor": "3",
        # Long enough that a paused broker is not fenced meanwhile, also on a busy machine.
        "broker.lease.ms": "15000",
    }
    with ReplicatedCluster(tmp_path_factory.mktemp("followers"), properties=properties) as running:
        yield running


def produce(cluster: ReplicatedCluster, topic: str, values: list[bytes], acks: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "log_level": 2})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def logs_of(cluster: ReplicatedCluster, topic: str) -> dict[int, bytes]:
    name = "00000000000000000000.log"
    return {n: (cluster.folder / f"broker-{n}" / f"{topic}-0" / name).read_bytes() for n in (1, 2, 3)}


def test_an_unreplicated_tail_is_cut_off_and_all_logs_are_the_same_bytes(cluster: ReplicatedCluster) -> None:
    cluster.create("tail", **{"min.insync.replicas": "2"})
    produce(cluster, "tail", [b"kept %d" % number for number in range(20)], "all")
    leader = cluster.leader("tail")
    others = [broker_id for broker_id in (1, 2, 3) if broker_id != leader]
    for broker_id in others:
        cluster.pause(broker_id)
    # Fetches that already wait at the leader would still take the next records along.
    time.sleep(WAITING_FETCHES_S)
    produce(cluster, "tail", [b"lost %d" % number for number in range(10)], "1")
    cluster.kill(leader)
    for broker_id in others:
        cluster.resume(broker_id)
    cluster.leader("tail", other_than=leader)
    produce(cluster, "tail", [b"new %d" % number for number in range(5)], "all")
    cluster.start(leader)
    cluster.wait_for_isr("tail", 1, 2, 3)
    logs = logs_of(cluster, "tail")
    assert logs[1] == logs[2] == logs[3]
    assert b"kept 19" in logs[1] and b"new 4" in logs[1] and b"lost" not in logs[1]
    assert "where its history leaves the leader's" in cluster.log(leader)


def test_a_reader_reads_from_the_follower_in_its_rack(cluster: ReplicatedCluster) -> None:
    cluster.create("near")
    produce(cluster, "near", [b"%d" % number for number in range(100)], "all")
    leader = cluster.leader("near")
    near = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
    request = fetch_request(("near", ZERO_UUID), {0: 0})
    request.rack_id = f"rack-{near}"
    with Connection("127.0.0.1", cluster.ports[leader]) as to_leader:
        told = partitions_of(to_leader.call(request, 12))[0]
        assert (told.preferred_read_replica, told.records) == (near, b"")
    with Connection("127.0.0.1", cluster.ports[near]) as to_follower:
        assert partitions_of(to_follower.call(request, 12))[0].records, "the follower serves what is committed"
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "near", "client.rack": f"rack-{near}"}
    )
    try:
        consumer.assign([TopicPartition("near", 0, 0)])
        values: list[bytes] = []

        def read_more() -> bool:
            values.extend(message.value() for message in consumer.consume(1_000, 0.5))
            return len(values) >= 100

        until(read_more, "100 records")
        assert values == [b"%d" % number for number in range(100)]
    finally:
        consumer.close()


def test_kafkas_own_tool_shows_leader_replicas_and_isr(cluster: ReplicatedCluster) -> None:
    cluster.create("shown")
    leader = cluster.leader("shown")
    cluster.wait_for_isr("shown", 1, 2, 3)
    where = ("--bootstrap-server", cluster.bootstrap_servers)
    output = tool("TopicCommand", *where, "--describe", "--topic", "shown")
    row = next(line for line in output.splitlines() if "Partition: 0" in line)
    assert f"Leader: {leader}" in row
    replicas = row.split("Replicas: ")[1].split()[0]
    isr = row.split("Isr: ")[1].split()[0]
    assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]


def test_committed_offsets_outlive_the_groups_coordinator(cluster: ReplicatedCluster) -> None:
    cluster.create("grouped")
    produce(cluster, "grouped", [b"x"] * 10, "all")
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "outliving", "log_level": 2}
    place = TopicPartition("grouped", 0, 7)
    with_group = Consumer(config)
    with_group.commit(offsets=[place], asynchronous=False)
    with_group.close()
    partitions = cluster.admin.list_topics("__consumer_offsets", timeout=5).topics["__consumer_offsets"].partitions
    assert {len(state.replicas) for state in partitions.values()} == {3}
    for partition in partitions:
        cluster.wait_for_isr("__consumer_offsets", 1, 2, 3, partition=partition)
    for victim in (1, 2, 3):
        cluster.kill(victim)
        reader = Consumer(config)
        committed = until(
            lambda reader=reader: reader.committed([TopicPartition("grouped", 0)], timeout=20)[0].offset, "offsets"
        )
        reader.close()
        assert committed == 7, f"with broker {victim} gone"
        cluster.start(victim)
        for partition in partitions:
            cluster.wait_for_isr("__consumer_offsets", 1, 2, 3, partition=partition)
