"""GetTelemetrySubscriptions and PushTelemetry, here and on Apache Kafka with a plugin that takes what is pushed."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.base.errors import ErrorCode
from appliance.client.connection import Connection
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from appliance.wire.messages.push_telemetry import PushTelemetryRequest
from tests.support.broker import running_cluster
from tests.support.kafka_jars import kafka_jars
from tests.support.kafka_peer import KafkaPeer
from tests.support.otlp import gauge, metrics, number_point
from tests.support.telemetry import subscription

pytestmark = [pytest.mark.java, pytest.mark.compat]

PLUGIN = """
import java.util.*; import org.apache.kafka.common.metrics.*; import org.apache.kafka.server.telemetry.*;

public class Taker implements MetricsReporter, ClientTelemetry {
    public void init(List<KafkaMetric> metrics) { }
    public void metricChange(KafkaMetric metric) { }
    public void metricRemoval(KafkaMetric metric) { }
    public void configure(Map<String, ?> configs) { }
    public void close() { }
    public ClientTelemetryReceiver clientReceiver() { return (context, payload) -> { }; }
}
"""
PUSHED = metrics([gauge("a.b", number_point(1, {}))])
PROPERTIES = {"telemetry.max.bytes": "5000"}
WAIT_S = 30.0


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("javac is not installed")
    classes = tmp_path_factory.mktemp("classes")
    (classes / "Taker.java").write_text(PLUGIN)
    command = [javac, "-nowarn", "-cp", f"{kafka_jars()}/*", str(classes / "Taker.java")]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    with (
        running_cluster(tmp_path_factory.mktemp("ours"), properties=PROPERTIES) as cluster,
        KafkaPeer(properties=PROPERTIES | {"metric.reporters": "Taker"}, classes=classes) as peer,
    ):
        yield cluster.brokers[1].port, peer.port


class Side:
    """One server, asked as one client of a name."""

    def __init__(self, port: int) -> None:
        self.connection = Connection("127.0.0.1", port, client_id="me", timeout_ms=30_000)
        self.connection.versions()  # which says what it is, too
        software = ApiVersionsRequest(client_software_name="mine", client_software_version="1.2")
        assert self.connection.call(software, 3).error_code == 0

    def subscribe(self, name: str, **entries: str) -> None:
        asked = {key.replace("_", "."): value for key, value in entries.items()}
        (row,) = self.connection.call(subscription(name, asked)).responses
        assert row.error_code == 0, row.error_message

    def get(self, number: int) -> tuple[Any, ...]:
        answer = self.connection.call(GetTelemetrySubscriptionsRequest(client_instance_id=uuid.UUID(int=number)))
        if answer.error_code:
            return (ErrorCode(answer.error_code).name,)
        return (
            answer.subscription_id,
            answer.push_interval_ms,
            answer.telemetry_max_bytes,
            list(answer.accepted_compression_types),
            sorted(answer.requested_metrics),
        )

    def push(
        self, number: int, subscription_id: int, data: bytes = PUSHED, *, codec: int = 0, last: bool = False
    ) -> str:
        request = PushTelemetryRequest(
            client_instance_id=uuid.UUID(int=number),
            subscription_id=subscription_id,
            terminating=last,
            compression_type=codec,
            metrics=data,
        )
        return ErrorCode(self.connection.call(request).error_code).name


def told(port: int) -> list[Any]:
    side = Side(port)
    found: list[Any] = [("nobody asks", side.get(2 << 70 | 2))]
    side.subscribe("one", metrics="a.", interval_ms="200000", match="client_software_name=mi.*,client_id=me")
    side.subscribe("others", metrics="x.", interval_ms="1000", match="client_id=m")
    deadline, number = time.monotonic() + WAIT_S, 1_000
    while side.get(number)[1] != 200_000:
        assert time.monotonic() < deadline
        number += 1
    for one in (3, 5 << 100, 7 << 64 | 9):
        first = side.get(one)
        found.append(("asks", first, side.get(one), side.push(one, first[0]), side.push(one, first[0])))
        found.append(("ends", side.push(one, first[0], last=True), side.push(one, first[0]), side.get(one)))
    known = side.get(11)[0]
    found.append(("wrong subscription", side.push(11, known + 1), side.push(11, known)))
    found.append(("of nobody", side.push(0, 1), side.push(1, 1)))
    for what, data, codec in (("codec", PUSHED, 9), ("size", bytes(5_001), 0), ("nothing", b"", 0)):
        number = 20 + len(found)
        found.append((what, side.push(number, side.get(number)[0], data, codec=codec)))
    side.subscribe("all", metrics="*", interval_ms="100000", match="client_software_version=1[.]2")
    number = 2_000
    while side.get(number)[1] != 100_000:
        assert time.monotonic() < deadline
        number += 1
    found.append(("all", side.get(12), side.get(3)))
    side.connection.close()
    return found


def test_both_say_the_same(ports: tuple[int, int]) -> None:
    ours, theirs = ports
    assert told(ours) == told(theirs)
