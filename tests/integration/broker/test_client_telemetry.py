"""Clients tell of themselves over the wire, and what came is shown (KIP-714)."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID, uuid_to_text
from appliance.cli.main import app
from appliance.client.connection import Connection
from appliance.records.compression import compress
from appliance.wire.messages.api_versions import ApiVersionsRequest
from appliance.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from appliance.wire.messages.push_telemetry import PushTelemetryRequest
from tests.support.broker import RunningCluster, running_cluster
from tests.support.otlp import gauge, metrics, number_point, total
from tests.support.ports import free_port
from tests.support.telemetry import subscription

PUSHED = metrics(
    [gauge("a.level", number_point(1.5, {"topic": "t"})), total("a.total", number_point(7, {}))], {"group_id": "g"}
)
METRICS_PORT = free_port()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    properties = {"telemetry.max.bytes": "5000", "metrics.port": str(METRICS_PORT)}
    with running_cluster(tmp_path_factory.mktemp("cluster"), properties=properties) as running:
        yield running


@pytest.fixture
def connection(cluster: RunningCluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", cluster.brokers[1].port, client_id="test", timeout_ms=30_000) as connection:
        connection.versions()  # which says what it is, too
        software = ApiVersionsRequest(client_software_name="mine", client_software_version="1.2")
        assert connection.call(software, 3).error_code == ErrorCode.NONE
        yield connection


def subscribe(connection: Connection, name: str, entries: dict[str, str]) -> None:
    (row,) = connection.call(subscription(name, entries)).responses
    assert row.error_code == ErrorCode.NONE, row.error_message


def asked(connection: Connection, metric: str) -> GetTelemetrySubscriptionsResponse:
    """The subscription of a new client, once the broker knows what was set."""
    deadline = time.monotonic() + 60
    while True:
        answer = connection.call(GetTelemetrySubscriptionsRequest())
        assert answer.error_code == ErrorCode.NONE
        if metric in answer.requested_metrics:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)


def pushing(
    connection: Connection, client: GetTelemetrySubscriptionsResponse, data: bytes, codec: int = 0, last: bool = False
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=client.client_instance_id,
        subscription_id=client.subscription_id,
        terminating=last,
        compression_type=codec,
        metrics=data,
    )
    return connection.call(request).error_code


def test_what_a_client_pushes_is_shown_by_exporter_and_command(cluster: RunningCluster, connection: Connection) -> None:
    match = "client_software_name=mine,client_id=test"
    subscribe(connection, "mine", {"metrics": "a.", "interval.ms": "100000", "match": match})
    client = asked(connection, "a.")
    assert client.client_instance_id != ZERO_UUID
    assert list(client.accepted_compression_types) == [4, 3, 1, 2]
    assert (client.push_interval_ms, client.telemetry_max_bytes, client.delta_temporality) == (100_000, 5_000, False)
    assert pushing(connection, client, compress(4, PUSHED), codec=4) == ErrorCode.NONE
    assert pushing(connection, client, PUSHED) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30) as response:
        text = response.read().decode()
    instance = uuid_to_text(client.client_instance_id)
    assert 'metric="a.level",topic="t"} 1.5' in text and f'client_instance_id="{instance}"' in text
    assert 'metric="a.total"} 7.0' in text and 'group_id="g"' in text
    assert 'appliance_client_pushes_total{outcome="taken"}' in text
    at = ["--bootstrap-server", f"127.0.0.1:{cluster.brokers[1].port}", "--format", "json"]
    shown = CliRunner().invoke(app, ["cluster", "clients", "--instance", instance, *at])
    (row,) = json.loads(shown.stdout)
    assert (row["software"], row["client_id"], row["about"], row["pushes"]) == ("mine 1.2", "test", "group_id=g", 1)
    assert row["metrics"][0] == {"name": "a.level", "attributes": "topic=t", "value": 1.5}
    everybody = CliRunner().invoke(app, ["cluster", "clients", *at[:2]])
    assert instance in everybody.stdout and "mine 1.2" in everybody.stdout


def test_a_push_comes_in_each_codec(connection: Connection) -> None:
    subscribe(connection, "codecs", {"metrics": "c."})
    for codec in range(5):
        client = asked(connection, "c.")
        assert pushing(connection, client, compress(codec, PUSHED), codec) == ErrorCode.NONE
        assert pushing(connection, client, b"", last=True) == ErrorCode.NONE
        assert pushing(connection, client, b"") == ErrorCode.INVALID_REQUEST


def test_pushes_that_cannot_be_read_are_refused_and_the_connection_goes_on(connection: Connection) -> None:
    subscribe(connection, "bad", {"metrics": "d."})
    for data, codec, code in (
        (PUSHED[:-1], 0, ErrorCode.INVALID_RECORD),
        (b"no gzip", 1, ErrorCode.INVALID_RECORD),
        (compress(4, bytes(20 << 20)), 4, ErrorCode.INVALID_RECORD),
        (bytes(5_001), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (PUSHED, 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ):
        assert pushing(connection, asked(connection, "d."), data, codec) == code
    other = asked(connection, "d.")
    other.subscription_id += 1
    assert pushing(connection, other, PUSHED) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
