"""Groups with librdkafka's consumer and admin client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker import RunningCluster
from tests.support.group_clients import PATIENCE_S, new_topic, wait_until


class Members:
    """Consumers of one group, polled in turn."""

    def __init__(self, bootstrap_servers: str, group_id: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.group_id = group_id
        self.consumers: list[Consumer] = []
        self.seen: list[tuple[int, int]] = []
        self.revoked: list[Consumer] = []
        """Who had to give something up."""

    def add(self, topic: str, **options: Any) -> Consumer:
        config = {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        consumer = Consumer(config)
        consumer.subscribe([topic], on_revoke=lambda consumer, parts: self.revoked.append(consumer))
        self.consumers.append(consumer)
        return consumer

    def poll(self) -> None:
        for consumer in self.consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset()))

    def owned(self) -> list[int]:
        return sorted(part.partition for consumer in self.consumers for part in consumer.assignment())

    def share(self, *sizes: int) -> None:
        """Wait until the members own so many partitions each, in any order."""
        wait_until(lambda: sorted(len(each.assignment()) for each in self.consumers) == sorted(sizes), self.poll)

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def members(cluster: RunningCluster, request: pytest.FixtureRequest) -> Iterator[Members]:
    members = Members(cluster.bootstrap_servers, request.node.name)
    yield members
    members.close()


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_a_topic_and_rebalance(cluster: RunningCluster, members: Members, strategy: str) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=4, records=40)
    first = members.add(topic, partition_assignment_strategy=strategy)
    wait_until(lambda: len(members.seen) == 40, members.poll)
    first.commit(asynchronous=False)
    second = members.add(topic, partition_assignment_strategy=strategy)
    members.share(2, 2)
    assert members.owned() == [0, 1, 2, 3]
    members.consumers.remove(first)
    first.close()
    members.share(4)
    assert len(members.seen) == len(set(members.seen)) == 40, "what was committed is not read again"
    assert len(second.assignment()) == 4


def test_a_member_that_crashed_is_missed(cluster: RunningCluster, members: Members) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=2)
    members.add(topic, session_timeout_ms=1_500)
    lost = members.add(topic, session_timeout_ms=1_500, max_poll_interval_ms=1_500)
    members.share(1, 1)
    # Librdkafka leaves a group by itself when nobody polls; the broker sees the end of its heartbeats.
    members.consumers.remove(lost)
    members.share(2)
    lost.close()


def test_a_static_member_comes_back_without_a_rebalance(cluster: RunningCluster, members: Members) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=4)
    stays = members.add(topic, group_instance_id="stays")
    leaves = members.add(topic, group_instance_id="leaves")
    members.share(2, 2)
    kept, given = stays.assignment(), leaves.assignment()
    members.revoked.clear()
    members.consumers.remove(leaves)
    leaves.close()
    back = members.add(topic, group_instance_id="leaves")
    members.share(2, 2)
    assert (stays.assignment(), back.assignment()) == (kept, given)
    assert stays not in members.revoked


def test_an_offset_comes_back_with_its_text(cluster: RunningCluster, members: Members) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=1, records=3)
    consumer = members.add(topic)
    members.share(1)
    part = TopicPartition(topic, 0, 2, "a note", 0)
    consumer.commit(offsets=[part], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    assert (committed.offset, committed.metadata, committed.leader_epoch) == (2, "a note", 0)
    with pytest.raises(KafkaException, match="metadata"):
        consumer.commit(offsets=[TopicPartition(topic, 0, 2, "x" * 5_000)], asynchronous=False)


def test_an_administrator_sees_and_changes_groups(
    cluster: RunningCluster, members: Members, admin: AdminClient
) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=2, records=4)
    group_id = members.group_id
    consumer = members.add(topic, client_id="the-app")
    members.share(2)
    listed = admin.list_consumer_groups(request_timeout=PATIENCE_S).result()
    assert listed.errors == []
    assert {group.group_id: group.state for group in listed.valid}[group_id] == ConsumerGroupState.STABLE
    described = admin.describe_consumer_groups([group_id])[group_id].result()
    (member,) = described.members
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert (member.client_id, member.host) == ("the-app", "/127.0.0.1")
    assert sorted(part.partition for part in member.assignment.topic_partitions) == [0, 1]
    in_use = admin.delete_consumer_groups([group_id])[group_id]
    with pytest.raises(KafkaException, match="not empty"):
        in_use.result()
    consumer.close()
    members.consumers.clear()
    altered = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 1), TopicPartition(topic, 9, 1)])
    parts = admin.alter_consumer_group_offsets([altered])[group_id].result().topic_partitions
    assert [part.error is None for part in parts] == [True, False]
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
    assert [(part.partition, part.offset) for part in found.topic_partitions] == [(0, 1)]
    assert admin.delete_consumer_groups([group_id])[group_id].result() is None
    gone = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
    assert gone.topic_partitions == []


def test_offsets_of_a_deleted_topic_are_forgotten(
    cluster: RunningCluster, members: Members, admin: AdminClient
) -> None:
    topic = new_topic(cluster.bootstrap_servers, partitions=1, records=1)
    asked = ConsumerGroupTopicPartitions(members.group_id, [TopicPartition(topic, 0, 1)])
    admin.alter_consumer_group_offsets([asked])[members.group_id].result()
    everything = ConsumerGroupTopicPartitions(members.group_id)

    def offsets() -> list[TopicPartition]:
        found = admin.list_consumer_group_offsets([everything])[members.group_id].result()
        parts: list[TopicPartition] = found.topic_partitions
        return parts

    assert len(offsets()) == 1
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: offsets() == [])
