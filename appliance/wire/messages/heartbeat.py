"""Heartbeat: a member of a classic group is alive.

v3 static members (KIP-345) · v4 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions=(0, 4), flexible_from=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = field(since=3, default=None)


class HeartbeatResponse(Struct, api_key=12, versions=(0, 4), flexible_from=4):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = 0
