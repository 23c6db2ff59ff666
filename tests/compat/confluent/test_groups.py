"""Consumer groups of librdkafka: members come and go under load, and the group reads every record once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.compat import PATIENCE_S, Server, wait_until

pytestmark = pytest.mark.xdist_group("compat")

PARTITIONS = 6


class Load:
    """Numbered records to a topic, so many at each turn; the topic's partitions in turn."""

    def __init__(self, server: Server, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 0})
        self._topic = topic
        self.sent = 0

    def turn(self, count: int = 5) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS)
            self.sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


class Member:
    """A consumer that commits what it has read before it gives a partition away, and notes what it reads."""

    def __init__(self, server: Server, group_id: str, topic: str, read: list[tuple[int, int]], **options: Any) -> None:
        config = {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        self.consumer = Consumer(config)
        self.revoked: list[list[int]] = []
        self.lost = 0
        self._read = read
        self.consumer.subscribe([topic], on_revoke=self._on_revoke, on_lost=self._on_lost)

    def turn(self) -> None:
        message: Message | None = self.consumer.poll(0.02)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            self._read.append((message.partition(), message.offset()))

    def owned(self) -> list[int]:
        return sorted(part.partition for part in self.consumer.assignment())

    def commit(self) -> None:
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            if "_NO_OFFSET" not in str(error):
                raise

    def leave(self) -> None:
        self.commit()
        self.consumer.close()

    def _on_revoke(self, _: Consumer, parts: list[TopicPartition]) -> None:
        self.revoked.append(sorted(part.partition for part in parts))
        self.commit()

    def _on_lost(self, _: Consumer, parts: list[TopicPartition]) -> None:
        self.lost += len(parts)


class Group:
    """Members of one group, taking turns, and everything that they read."""

    def __init__(self, server: Server, group_id: str, topic: str) -> None:
        self.read: list[tuple[int, int]] = []
        self.members: list[Member] = []
        self._place = (server, group_id, topic)

    def join(self, **options: Any) -> Member:
        member = Member(*self._place, self.read, **options)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.leave()

    def turn(self) -> None:
        for member in self.members:
            member.turn()

    def shares(self, *sizes: int) -> bool:
        """Whether the members own so many partitions each, all of them together and none twice."""
        owned = [member.owned() for member in self.members]
        everything = sorted(partition for each in owned for partition in each)
        return sorted(map(len, owned)) == sorted(sizes) and everything == list(range(PARTITIONS))


@pytest.fixture
def topic(server: Server) -> str:
    return server.new_topic(PARTITIONS)


@pytest.fixture
def group(server: Server, group_id: str, topic: str) -> Iterator[Group]:
    made = Group(server, group_id, topic)
    yield made
    for member in made.members:
        member.consumer.close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_every_record_is_read_once_while_members_come_and_go(
    server: Server, group: Group, topic: str, strategy: str
) -> None:
    load = Load(server, topic)

    def turn() -> None:
        load.turn()
        group.turn()

    first = group.join(partition_assignment_strategy=strategy)
    wait_until(lambda: group.shares(6) and len(group.read) > 50, turn)
    second = group.join(partition_assignment_strategy=strategy)
    wait_until(lambda: group.shares(3, 3), turn)
    kept_at_joining = set(range(PARTITIONS)) - {number for each in first.revoked for number in each}
    assert kept_at_joining == (set(first.owned()) if strategy == "cooperative-sticky" else set())
    before = len(group.read)
    wait_until(lambda: len(group.read) > before + 50, turn)
    group.leave(first)
    wait_until(lambda: group.shares(6), turn)
    load.finish()
    wait_until(lambda: len(group.read) >= load.sent, group.turn)
    times = Counter(group.read)
    assert set(times.values()) == {1}, "read more than once"
    assert set(times) == {(number % PARTITIONS, number // PARTITIONS) for number in range(load.sent)}
    assert second.lost == 0

    # Whoever comes after them all goes on where they ended.
    group.leave(second)
    load.turn(12)
    load.finish()
    group.join(partition_assignment_strategy=strategy)
    wait_until(lambda: len(group.read) >= load.sent, group.turn)
    assert set(Counter(group.read).values()) == {1}


def test_a_static_member_that_is_back_in_time_gets_what_it_had(group: Group) -> None:
    stays = group.join(group_instance_id="stays")
    leaves = group.join(group_instance_id="leaves")
    wait_until(lambda: group.shares(3, 3), group.turn)
    kept, given = stays.owned(), leaves.owned()
    stays.revoked.clear()
    group.leave(leaves)
    back = group.join(group_instance_id="leaves")
    wait_until(lambda: group.shares(3, 3), group.turn)
    assert (stays.owned(), back.owned()) == (kept, given)
    assert stays.revoked == [], "nobody else noticed"


def test_the_second_of_two_with_one_static_name_wins(group: Group) -> None:
    first = group.join(group_instance_id="twin")
    wait_until(lambda: group.shares(6), group.turn)
    group.members.remove(first)
    group.join(group_instance_id="twin")
    wait_until(lambda: group.shares(6), group.turn)
    with pytest.raises(KafkaException, match=r"_FATAL|FENCED_INSTANCE_ID"):
        wait_until(lambda: False, first.turn)
    assert group.shares(6)
    first.consumer.close()


def test_members_that_speak_no_common_strategy_are_kept_apart(group: Group) -> None:
    group.join(partition_assignment_strategy="range")
    wait_until(lambda: group.shares(6), group.turn)
    stranger = group.join(partition_assignment_strategy="cooperative-sticky")
    with pytest.raises(KafkaException, match="INCONSISTENT_GROUP_PROTOCOL"):
        wait_until(lambda: False, group.turn)
    group.members.remove(stranger)
    stranger.consumer.close()
    assert group.shares(6)
