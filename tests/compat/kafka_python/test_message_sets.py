"""kafka-python as it talks to brokers of 2015: message sets of magic 0 and 1 in both directions."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.compat import AGAINST_KAFKA, PATIENCE_S, Server, read_topic

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka 4 serves no message sets any more"),
]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("api_version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)])
def test_old_versions_write_and_read(server: Server, api_version: tuple[int, ...], codec: str | None) -> None:
    if codec == "lz4" and api_version < (0, 10):
        codec = None  # the lz4 of magic 0 needs a library that this client does not bring
    topic = server.new_topic()
    values = [b"%d" % number * 50 for number in range(200)]
    producer = KafkaProducer(
        bootstrap_servers=server.bootstrap_servers, api_version=api_version, compression_type=codec
    )
    sent = [producer.send(topic, value, b"k") for value in values]
    assert [future.get(PATIENCE_S).offset for future in sent] == list(range(200))
    producer.close()
    assert [(message.key(), message.value()) for message in read_topic(server, topic)] == [(b"k", v) for v in values]
    consumer = KafkaConsumer(
        bootstrap_servers=server.bootstrap_servers, api_version=api_version, consumer_timeout_ms=30_000
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    assert [record.value for _, record in zip(values, consumer, strict=False)] == values
    consumer.close()
