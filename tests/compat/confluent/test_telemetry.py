"""librdkafka pushes its metrics where an administrator asks for them (enable.metrics.push)."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer

from appliance.base.errors import ErrorCode
from appliance.client.client import Client
from tests.support.compat import AGAINST_KAFKA, Server, wait_until
from tests.support.telemetry import pushed_by, subscription

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka brings no plugin that takes clients' metrics"),
]


def test_a_producer_pushes_what_is_asked_of_it(server: Server) -> None:
    client_id = f"producer-{uuid.uuid4().hex[:12]}"
    entries = {"metrics": "org.apache.kafka.producer.", "interval.ms": "200", "match": f"client_id={client_id}"}
    with Client(server.bootstrap_servers) as client:
        (row,) = client.call(subscription(client_id, entries)).responses
        assert row.error_code == ErrorCode.NONE
    topic = server.new_topic()
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "client.id": client_id})
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    wait_until(lambda: bool(pushed_by(server, client_id)))
    ((software, names),) = pushed_by(server, client_id).items()
    assert "kafka" in software
    assert all(name.startswith("org.apache.kafka.producer.") for name in names)
