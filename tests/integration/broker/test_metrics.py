from __future__ import annotations

import urllib.request
from pathlib import Path

from appliance.client.connection import Connection
from tests.support.broker import running_cluster
from tests.support.ports import free_port
from tests.support.requests import batch_of, new_topic, produce


def test_a_broker_serves_its_numbers(tmp_path: Path) -> None:
    port = free_port()
    with running_cluster(tmp_path, properties={"metrics.port": str(port)}) as cluster:
        with Connection("127.0.0.1", cluster.brokers[1].port, timeout_ms=10_000) as connection:
            topic = new_topic(connection)
            for version in (4, 9):
                produce(connection, topic, batch_of(b"a", b"b"), version=version)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()
    assert f'kafka_server_brokertopicmetrics_messagesin_total{{topic="{topic.name}"}} 4.0' in text
    assert 'kafka_network_requestmetrics_requests_total{request="Produce"} 2.0' in text
    assert "appliance_broker_lease 1.0" in text
    (lag,) = [line for line in text.splitlines() if line.startswith("appliance_event_loop_lag_p999_seconds ")]
    assert 0 < float(lag.split()[1]) < 60
