"""librdkafka told that its brokers are of 2015 (broker.version.fallback): message sets in both directions."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.compat import AGAINST_KAFKA, Server, read_topic

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka 4 serves no message sets any more"),
]


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0.1"])
def test_old_versions_write_and_read(server: Server, version: str) -> None:
    old = {
        "bootstrap.servers": server.bootstrap_servers,
        "api.version.request": False,
        "broker.version.fallback": version,
    }
    topic = server.new_topic()
    values = [b"%d" % number * 50 for number in range(200)]
    producer = Producer(old | {"compression.type": "snappy"})
    for value in values:
        producer.produce(topic, value, b"k")
    assert producer.flush(60) == 0
    assert [message.value() for message in read_topic(server, topic)] == values
    consumer = Consumer(old | {"group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = [message for _ in values if (message := consumer.poll(30)) is not None]
    assert [message.value() for message in read] == values
    consumer.close()
