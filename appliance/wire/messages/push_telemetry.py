"""PushTelemetry: a client's metrics, in OpenTelemetry's protobuf (KIP-714)."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct
from appliance.wire.types import Bool, Bytes, Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Request["PushTelemetryResponse"], api_key=72, versions=(0, 0), flexible_from=0):
    client_instance_id: Uuid = ZERO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    """Its last one."""
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Struct, api_key=72, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
