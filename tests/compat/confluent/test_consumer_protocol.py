"""librdkafka with `group.protocol=consumer` (KIP-848): members come and go, and classic ones are in the same group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, Producer, TopicPartition

from tests.support.compat import PATIENCE_S, Server, wait_until

pytestmark = pytest.mark.xdist_group("compat")

PARTITIONS = 6
CLASSIC: dict[str, Any] = {
    "group.protocol": "classic",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 200,
    "partition.assignment.strategy": "cooperative-sticky",
}


class Members:
    """Consumers of one group that commit what they give away, and what all of them have read."""

    def __init__(self, server: Server, group_id: str, topic: str) -> None:
        self._server, self._group_id, self._topic = server, group_id, topic
        self.read: list[tuple[int, int]] = []
        self.all: list[Consumer] = []

    def join(self, topic: str = "", **options: Any) -> Consumer:
        config = {
            "bootstrap.servers": self._server.bootstrap_servers,
            "group.id": self._group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": "consumer",
            **options,
        }
        member = Consumer(config)
        member.subscribe([topic or self._topic], on_revoke=self._revoked)
        self.all.append(member)
        return member

    def leave(self, member: Consumer) -> None:
        self._commit(member)
        self.all.remove(member)
        member.close()

    def turn(self) -> None:
        for member in self.all:
            message = member.poll(0.02)
            if message is not None:
                if message.error():
                    raise KafkaException(message.error())
                self.read.append((message.partition(), message.offset()))

    def until_they_have(self, **counts: int) -> None:
        """Until each member, named m0, m1 and so on, has so many partitions."""
        wanted = list(counts.values())
        wait_until(lambda: [len(member.assignment()) for member in self.all] == wanted, self.turn)

    def _revoked(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit(member)

    def _commit(self, member: Consumer) -> None:
        try:
            member.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":
                raise

    def close(self) -> None:
        for member in self.all:
            member.close()


@pytest.fixture
def topic(server: Server) -> str:
    return server.new_topic(PARTITIONS)


@pytest.fixture
def members(server: Server, group_id: str, topic: str) -> Iterator[Members]:
    members = Members(server, group_id, topic)
    yield members
    members.close()


def send(server: Server, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.compat
def test_members_come_and_go_and_the_group_reads_every_record_once(
    server: Server, members: Members, topic: str
) -> None:
    first = members.join()
    members.until_they_have(m0=PARTITIONS)
    send(server, topic, 300)
    wait_until(lambda: len(members.read) >= 50, members.turn)
    members.join()
    members.until_they_have(m0=PARTITIONS // 2, m1=PARTITIONS // 2)
    send(server, topic, 300)
    wait_until(lambda: len(members.read) >= 400, members.turn)
    members.leave(first)
    members.until_they_have(m0=PARTITIONS)
    wait_until(lambda: len(members.read) >= 600, members.turn)
    assert set(Counter(members.read).values()) == {1}
    assert len(members.read) == 600


@pytest.mark.compat
def test_what_was_committed_is_where_the_next_member_goes_on(
    server: Server, members: Members, topic: str, group_id: str
) -> None:
    send(server, topic, 60)
    first = members.join()
    wait_until(lambda: len(members.read) == 60, members.turn)
    members.leave(first)
    send(server, topic, 6)
    members.join()
    wait_until(lambda: len(members.read) == 66, members.turn)
    assert set(Counter(members.read).values()) == {1}


def test_a_subscription_by_regular_expression_is_resolved_by_the_server(server: Server, members: Members) -> None:
    prefix = server.new_topic(1)
    members.join(f"^{prefix}.*")
    members.until_they_have(m0=1)


def test_a_group_is_described(server: Server, members: Members, group_id: str, topic: str) -> None:
    members.join(**{"group.instance.id": "i1", "client.id": "me", "group.remote.assignor": "range"})
    members.until_they_have(m0=PARTITIONS)

    def described() -> Any:
        return server.admin.describe_consumer_groups([group_id])[group_id].result(PATIENCE_S)

    wait_until(lambda: described().state == ConsumerGroupState.STABLE, members.turn)
    group = described()
    (member,) = group.members
    assert (group.type, group.partition_assignor) == (ConsumerGroupType.CONSUMER, "range")
    assert (member.group_instance_id, member.client_id) == ("i1", "me")
    assert sorted((each.topic, each.partition) for each in member.assignment.topic_partitions) == [
        (topic, number) for number in range(PARTITIONS)
    ]
    listed = {group.group_id: group for group in server.admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert listed[group_id].type == ConsumerGroupType.CONSUMER


@pytest.mark.compat
def test_classic_members_and_those_of_the_new_protocol_share_a_group_in_both_directions(
    server: Server, members: Members, topic: str, group_id: str
) -> None:
    classic = members.join(**CLASSIC)
    members.until_they_have(m0=PARTITIONS)
    send(server, topic, 120)
    new = members.join()
    members.until_they_have(m0=PARTITIONS // 2, m1=PARTITIONS // 2)
    members.join(**CLASSIC)
    members.until_they_have(m0=2, m1=2, m2=2)
    send(server, topic, 120)
    members.leave(new)
    members.until_they_have(m0=PARTITIONS // 2, m1=PARTITIONS // 2)
    wait_until(lambda: len(members.read) >= 240, members.turn)
    assert set(Counter(members.read).values()) == {1}
    members.leave(classic)
    members.until_they_have(m0=PARTITIONS)
    described = server.admin.describe_consumer_groups([group_id])[group_id].result(PATIENCE_S)
    assert described.type == ConsumerGroupType.CLASSIC
