"""All disks of all brokers are lost: the bucket alone brings records, offsets, commits and configs back."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from appliance.base.ids import TopicPartition as Place
from appliance.client.client import Client
from tests.support.broker import RunningCluster
from tests.support.replicated import until
from tests.support.total_loss import cluster_over, lose_disks, tier

TOPIC, GROUP = "orders", "billing"
PARTITIONS, RECORDS = 2, 60
GAP = 1 << 30
COMMIT = struct.pack(">h6si", 6, TOPIC.encode(), 1)
"""Ends the key of the commit of partition 1."""
Found = dict[int, list[tuple[int, bytes]]]
"""(offset, first bytes of the value), by partition."""
CONFIGS = {
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "max.message.bytes": "999999",
}


def fill(cluster: RunningCluster, first: int, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 2})
    for number in range(first, first + count):
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d-%06d" % (partition, number) + b"x" * 60_000, partition=partition)
    assert producer.flush(60) == 0


def consumer_of(cluster: RunningCluster, reset: str = "error") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": reset,
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "log_level": 2,
        }
    )


def ends(cluster: RunningCluster, timestamp: int = -1) -> list[int]:
    with Client(cluster.bootstrap_servers) as client:
        found = client.list_offsets({Place(TOPIC, partition): timestamp for partition in range(PARTITIONS)})
    return [found[Place(TOPIC, partition)].offset for partition in range(PARTITIONS)]


def take(consumer: Consumer, enough: Callable[[Found], bool]) -> Found:
    """What the consumer gets until it is enough."""
    found: Found = {partition: [] for partition in range(PARTITIONS)}

    def more() -> bool:
        for message in consumer.consume(500, 0.3):
            assert message.error() is None, message.error()
            found[message.partition()].append((message.offset(), message.value()[:8]))
        return enough(found)

    until(more, f"enough records, there are {[len(rows) for rows in found.values()]}")
    return found


def has_newest(found: Found) -> bool:
    return all(rows and rows[-1][1].endswith(b"%06d" % (RECORDS + 4)) for rows in found.values())


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_record_below_the_uploaded_end_is_back_and_consumers_go_on_from_their_commits(
    tmp_path: Path, brokers: int
) -> None:
    store = tmp_path / "bucket"
    with cluster_over(tmp_path / "first", store, brokers, {"restore.offset.gap": str(GAP)}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, brokers, config=CONFIGS)])[TOPIC].result(20)
        fill(cluster, 0)
        consumer = consumer_of(cluster, "earliest")
        consumer.subscribe([TOPIC])
        first = take(consumer, lambda found: all(len(rows) == RECORDS for rows in found.values()))
        # One partition's commit lies in what was uploaded, the other's at the end of what was not.
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5), TopicPartition(TOPIC, 1, RECORDS)], asynchronous=False)
        until(lambda: min(ends(cluster, -5)) > 20, "most records to be uploaded")
        until(lambda: min(ends(cluster, -4)) > 20, "local copies to go")
        until(lambda: COMMIT in b"".join(path.read_bytes() for path in store.glob("groups/*/*")), "the commits")
        tiered = [latest + 1 for latest in ends(cluster, -5)]
        consumer.close()
    lose_disks(tmp_path / "first")

    with cluster_over(tmp_path / "second", store, brokers, {"restore.offset.gap": str(GAP)}) as cluster:
        code, rows = tier("restore", store.as_uri(), "--bootstrap-server", cluster.bootstrap_servers)
        assert code == 0, rows
        restored = {(row["topic"], row["partition"]): row for row in rows}
        assert [restored[TOPIC, n]["result"] for n in range(PARTITIONS)] == ["restored"] * PARTITIONS
        assert {row["source"] for row in rows if row["topic"] == "__consumer_offsets"} == {"backup of groups"}
        assert ends(cluster) == [end + GAP for end in tiered], "no offset that somebody may have seen is given again"
        fill(cluster, RECORDS, 5)
        consumer = consumer_of(cluster)
        consumer.subscribe([TOPIC])
        went_on = take(
            consumer,
            lambda found: all(rows and rows[-1][1].endswith(b"%06d" % (RECORDS + 4)) for rows in found.values()),
        )
        consumer.close()
        new = [
            [(end + GAP + n, b"%d-%06d" % (partition, RECORDS + n)) for n in range(5)]
            for partition, end in enumerate(tiered)
        ]
        assert went_on[0] == first[0][5 : tiered[0]] + new[0], "it goes on from its commit, through the gap"
        assert went_on[1] == new[1], "its commit lay beyond the uploaded end"
        reader = consumer_of(cluster)
        reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        everything = take(reader, lambda found: all(len(rows) == tiered[p] + 5 for p, rows in found.items()))
        reader.close()
        assert everything == {p: first[p][: tiered[p]] + new[p] for p in range(PARTITIONS)}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        configs = admin.describe_configs([resource])[resource].result(20)
        assert {name: configs[name].value for name in CONFIGS} == CONFIGS
        assert tier("restore", store.as_uri(), "--bootstrap-server", cluster.bootstrap_servers) == (0, [])
        code, report = tier("verify", store.as_uri())
        assert (code, report["whole"]) == (0, True), report


def test_without_metadata_names_epochs_and_commits_come_from_the_tier_and_nothing_is_deleted(tmp_path: Path) -> None:
    store = tmp_path / "bucket"
    with cluster_over(tmp_path / "first", store, 1, {}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIGS)])[TOPIC].result(20)
        fill(cluster, 0)
        consumer = consumer_of(cluster, "earliest")
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5), TopicPartition(TOPIC, 1, 15)], asynchronous=False)
        until(lambda: min(ends(cluster, -5)) > 20, "most records to be uploaded")
        until(lambda: COMMIT in b"".join(path.read_bytes() for path in store.glob("groups/*/*")), "the commits")
        tiered = [latest + 1 for latest in ends(cluster, -5)]
        consumer.close()
    lose_disks(tmp_path / "first")
    shutil.rmtree(store / "metadata")
    (store / "cluster-id").unlink()

    assert tier("restore", store.as_uri())[0] == 2, "somebody has to say where the topics shall be"
    code, rebuilt = tier("restore", store.as_uri(), "--broker", "1")
    assert (code, rebuilt["rebuilt"]) == (0, ["__consumer_offsets", TOPIC])
    with cluster_over(tmp_path / "second", store, 1, {}) as cluster:
        code, rows = tier("restore", store.as_uri(), "--bootstrap-server", cluster.bootstrap_servers)
        assert code == 0, rows
        assert ends(cluster) == [end + GAP for end in tiered]
        fill(cluster, RECORDS, 5)
        consumer = consumer_of(cluster)
        consumer.assign([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        went_on = take(consumer, has_newest)
        consumer.close()
        assert [rows[0] for rows in went_on.values()] == [(5, b"0-000005"), (15, b"1-000015")]
        assert tier("verify", store.as_uri())[0] == 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        assert admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "-1"
