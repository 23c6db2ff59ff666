"""What is not served yet is refused with an error that says so, and harms nobody else: docs/compatibility.md."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.compat import AGAINST_KAFKA, PATIENCE_S, Server, wait_until

pytestmark = [
    pytest.mark.xdist_group("compat"),
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka serves all of this"),
]


@pytest.mark.parametrize(
    ("security", "code"),
    [
        ({"security.protocol": "SSL"}, KafkaError._TRANSPORT),
        ({"security.protocol": "SASL_SSL"}, KafkaError._TRANSPORT),
        ({"security.protocol": "SASL_PLAINTEXT"}, KafkaError._AUTHENTICATION),
    ],
    ids=["TLS", "SASL over TLS", "SASL"],
)
def test_clients_that_want_security_on_a_plain_listener_are_refused_and_others_go_on(
    server: Server, security: dict[str, Any], code: int
) -> None:
    topic = server.new_topic()
    plain = Producer({"bootstrap.servers": server.bootstrap_servers})
    plain.produce(topic, b"before")
    assert plain.flush(PATIENCE_S) == 0
    errors: list[int] = []
    sasl = {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"} if "SASL" in str(security) else {}
    quiet = {"log_level": 0, "error_cb": lambda error: errors.append(error.code())}
    secure = Producer({"bootstrap.servers": server.bootstrap_servers, **security, **sasl, **quiet})
    wait_until(lambda: code in errors, lambda: secure.poll(0.05))
    plain.produce(topic, b"after")
    assert plain.flush(PATIENCE_S) == 0
