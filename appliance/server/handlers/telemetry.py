"""GetTelemetrySubscriptions 0, PushTelemetry 0 (KIP-714), and our own BrokerClients, which shows what came.

- What a push holds is unpacked and read by a helper thread; what cannot be read is INVALID_RECORD.
- Nobody needs a right for it, as in Kafka: clients tell of themselves alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.quotas.connections import plain_address
from appliance.records.compression import decompress
from appliance.records.errors import CorruptBatch
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.requests import Pending, Request
from appliance.telemetry.clients import CODECS, Client, ClientTelemetry
from appliance.telemetry.otlp import BadTelemetry, Pushed, decode
from appliance.telemetry.subscriptions import About
from appliance.wire.api import ApiKey
from appliance.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from appliance.wire.messages.internal_clients import (
    BROKER_CLIENTS,
    BrokerClientsClient,
    BrokerClientsMetric,
    BrokerClientsRequest,
    BrokerClientsResponse,
)
from appliance.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

UNPACKED_MAX_BYTES = 16 << 20
"""What one push may unpack to."""


def telemetry_handlers() -> dict[int, HandlerEntry]:
    return {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: HandlerEntry(get_subscriptions),
        ApiKey.PUSH_TELEMETRY: HandlerEntry(push),
        BROKER_CLIENTS: HandlerEntry(broker_clients),
    }


def get_subscriptions(broker: Broker, request: Request) -> GetTelemetrySubscriptionsResponse:
    telemetry = _telemetry(broker)
    body = cast(GetTelemetrySubscriptionsRequest, request.body)
    found = telemetry.ask(body.client_instance_id, _about(request), broker.clock.monotonic_ms())
    if isinstance(found, ErrorCode):
        return GetTelemetrySubscriptionsResponse(error_code=found)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.instance_id,
        subscription_id=found.wanted.subscription_id,
        accepted_compression_types=list(CODECS),
        push_interval_ms=found.wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,
        requested_metrics=list(found.wanted.metrics),
    )


def push(broker: Broker, request: Request) -> PushTelemetryResponse | Pending:
    telemetry = _telemetry(broker)
    body = cast(PushTelemetryRequest, request.body)
    found = telemetry.may_push(
        body.client_instance_id,
        _about(request),
        broker.clock.monotonic_ms(),
        subscription_id=body.subscription_id,
        terminating=body.terminating,
        codec=body.compression_type,
        size=len(body.metrics),
    )
    if isinstance(found, ErrorCode):
        return PushTelemetryResponse(error_code=found)
    if not body.metrics:
        return PushTelemetryResponse()
    client, packed, codec = found, body.metrics, body.compression_type
    pending = request.pending()

    def done(result: Pushed | Exception) -> None:
        code = ErrorCode.NONE
        if isinstance(result, Pushed):
            telemetry.take(client, result)
        elif isinstance(result, CorruptBatch | BadTelemetry):
            telemetry.rejected += 1
            code = ErrorCode.INVALID_RECORD
        else:
            # Nobody is free to read it: the next push has it all.
            telemetry.throttled += 1
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        pending.answer(PushTelemetryResponse(error_code=code))

    broker.background.run(lambda: decode(bytes(decompress(codec, packed, UNPACKED_MAX_BYTES))), done)
    return pending


def broker_clients(broker: Broker, request: Request) -> BrokerClientsResponse:
    now_ms = broker.clock.monotonic_ms()
    shown = cast(BrokerClientsRequest, request.body).client_instance_id
    rows = [_row(client, now_ms) for client in _telemetry(broker).clients(now_ms)]
    for row, client in zip(rows, _telemetry(broker).clients(now_ms), strict=True):
        if client.instance_id == shown:
            row.metrics = [
                BrokerClientsMetric(name=each.name, attributes=_joined(each.attributes), value=each.value)
                for each in client.pushed.series
            ]
    return BrokerClientsResponse(clients=rows)


def _row(client: Client, now_ms: int) -> BrokerClientsClient:
    about = client.about
    return BrokerClientsClient(
        client_instance_id=client.instance_id,
        client_id=about.client_id,
        principal=about.principal,
        software_name=about.software_name,
        software_version=about.software_version,
        address=about.source_address,
        about=_joined(client.pushed.resource),
        subscription_id=client.wanted.subscription_id,
        interval_ms=client.wanted.interval_ms,
        requested_metrics=list(client.wanted.metrics),
        pushes=client.pushes,
        push_age_ms=now_ms - client.last_push_ms if client.pushes else -1,
        values=len(client.pushed.series),
        dropped=client.pushed.dropped,
    )


def _joined(attributes: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in attributes)


def _telemetry(broker: Broker) -> ClientTelemetry:
    return cast(ClientTelemetry, broker.telemetry)


def _about(request: Request) -> About:
    connection = request.connection
    name, version = connection.software
    port = connection.peer.rpartition(":")[2]
    return About(
        request.client_id or "", name, version, plain_address(connection.host), port, str(connection.principal)
    )
