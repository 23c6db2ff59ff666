"""A Java producer pushes its metrics where an administrator asks for them (enable.metrics.push, on by default)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compat import AGAINST_KAFKA, Server, wait_until
from tests.support.java_tools import RunningTool, tool
from tests.support.telemetry import pushed_by

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(AGAINST_KAFKA, reason="Apache Kafka brings no plugin that takes clients' metrics"),
]
JAVA, SENT = "apache-kafka-java", "org.apache.kafka.producer.record.send.total"


def test_a_java_producer_pushes_what_is_asked_of_it(server: Server, group_id: str, tmp_path: Path) -> None:
    at = ("--bootstrap-server", server.bootstrap_servers)
    metrics = ("--metrics", "org.apache.kafka.producer.", "--interval", "500", "--match", f"client_id={group_id}")
    tool("ClientMetricsCommand", *at, "--alter", "--name", group_id, *metrics)
    config = tmp_path / "client.properties"
    config.write_text(f"client.id={group_id}\n")
    run = ("--topic", server.new_topic(), "--throughput", "50", "--command-config", str(config))
    producer = RunningTool("VerifiableProducer", *at, *run)
    try:
        wait_until(lambda: SENT in pushed_by(server, group_id).get(JAVA, ()))
    finally:
        producer.stop()
