"""What administrators ask clients to tell of themselves, and what brokers say that came."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.client.connection import Connection
from appliance.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from appliance.wire.messages.internal_clients import BrokerClientsRequest
from tests.support.compat import Server

CLIENT_METRICS = 16


def subscription(name: str, entries: Mapping[str, str]) -> IncrementalAlterConfigsRequest:
    """Configs of client metrics that are to be set."""
    configs = [AlterableConfig(name=key, value=value) for key, value in entries.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def pushed_by(server: Server, client_id: str) -> dict[str, set[str]]:
    """Names of the metrics that clients of this id pushed last, to any broker, by their software."""
    found: dict[str, set[str]] = {}
    for address in server.bootstrap_servers.split(","):
        host, port = address.split(":")
        with Connection(host, int(port), client_id="test", timeout_ms=30_000) as connection:
            rows = connection.call(BrokerClientsRequest(), 0).clients
            for instance_id in [row.client_instance_id for row in rows if row.client_id == client_id and row.values]:
                for row in connection.call(BrokerClientsRequest(client_instance_id=instance_id), 0).clients:
                    if row.metrics:
                        found.setdefault(row.software_name, set()).update(metric.name for metric in row.metrics)
    return found
