"""Brokers are killed under unmodified clients, which go on by themselves."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.support.compat import AGAINST_KAFKA, BROKERS, Server, read_topic, wait_until
from tests.support.running import REAL, RunningAppliance

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="one node of Kafka is not restarted by anybody"),
]

PARTITIONS = 6


class Traffic:
    """An idempotent producer and a consumer in a group, in turns."""

    def __init__(self, server: Server, topic: str, group_id: str) -> None:
        options = {"bootstrap.servers": server.bootstrap_servers, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100}
        options |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        self._topic = topic
        self._producer = Producer(options | {"enable.idempotence": True, "linger.ms": 1})
        self._consumer = Consumer(
            options
            | {"group.id": group_id, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
            | {"heartbeat.interval.ms": 200, "auto.commit.interval.ms": 100}
        )
        self._consumer.subscribe([topic])
        self.sent = 0
        self.acknowledged: list[tuple[int, int, bytes]] = []
        """Partition, offset and value."""
        self.read: set[tuple[int, int, bytes]] = set()

    def turn(self, count: int = 10) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic, b"%d" % self.sent, b"%d" % (self.sent % 97), on_delivery=self._delivered
            )
            self.sent += 1
        self._producer.poll(0)
        for message in self._consumer.consume(100, 0.01):
            if message.error() is None:
                self.read.add((message.partition(), message.offset(), message.value()))

    def finish(self) -> None:
        """Wait until all is acknowledged and read."""
        assert self._producer.flush(60) == 0
        wait_until(lambda: len(self.read) >= len(self.acknowledged), lambda: self.turn(0))
        self._consumer.close()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged.append((message.partition(), message.offset(), message.value()))


def test_an_idempotent_producer_and_a_group_outlive_every_broker(tmp_path: Path, group_id: str) -> None:
    flags = ("--runtime", "local", "--brokers", str(BROKERS), "--services", "none")
    with RunningAppliance(tmp_path, *flags, module=REAL) as appliance:
        server = Server(appliance.ready()["bootstrap_servers"], tmp_path / "data", BROKERS)
        topic = server.new_topic(PARTITIONS)
        traffic = Traffic(server, topic, group_id)
        wait_until(lambda: len(traffic.read) > 200, traffic.turn)
        for broker in range(1, BROKERS + 1):
            (pid,) = re.findall(rf"broker-{broker} serves at \S+ \(pid (\d+)\)", appliance.log())
            os.kill(int(pid), signal.SIGKILL)
            again = rf"broker-{broker} serves at \S+ again"
            wait_until(lambda again=again: re.search(again, appliance.log()), traffic.turn)
            read = len(traffic.read)
            wait_until(lambda read=read: len(traffic.read) > read + 200, traffic.turn)
        traffic.finish()
        kept = read_topic(server, topic, PARTITIONS)
    found = {(message.partition(), message.offset(), message.value()) for message in kept}
    assert len(traffic.acknowledged) == traffic.sent
    assert found == set(traffic.acknowledged) == traffic.read, "nothing lost, nothing invented"
    assert set(Counter(message.value() for message in kept).values()) == {1}, "nothing twice"
    for key in {message.key() for message in kept}:
        numbers = [int(message.value()) for message in kept if message.key() == key]
        assert numbers == sorted(numbers), "in order within each key"
