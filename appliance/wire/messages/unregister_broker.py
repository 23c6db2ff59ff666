"""UnregisterBroker: a broker that does not come back (KIP-631)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], api_key=64, versions=(0, 0), flexible_from=0):
    broker_id: Int32 = 0


class UnregisterBrokerResponse(Struct, api_key=64, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default="")
