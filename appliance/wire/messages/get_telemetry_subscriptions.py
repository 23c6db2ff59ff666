"""GetTelemetrySubscriptions: a client asks which of its metrics are wanted, and how often (KIP-714)."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], api_key=71, versions=(0, 0), flexible_from=0
):
    client_instance_id: Uuid = ZERO_UUID
    """Zero: it has none yet."""


class GetTelemetrySubscriptionsResponse(Struct, api_key=71, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = field()
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    """Whether sums are to be those since the last push; else those since the client's start."""
    requested_metrics: list[String] = field()
    """Prefixes of names; `*` for all."""
