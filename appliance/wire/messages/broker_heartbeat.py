"""BrokerHeartbeat: a broker renews its lease, asks to be unfenced or to shut down (KIP-631).

v1 failed log directories (KIP-858) · v2 directories that take no new partitions (KIP-1066)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, Uuid


class BrokerHeartbeatRequest(Request["BrokerHeartbeatResponse"], api_key=63, versions=(0, 2), flexible_from=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: list[Uuid] = field(since=1, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(since=2, default=None, tag=1)


class BrokerHeartbeatResponse(Struct, api_key=63, versions=(0, 2), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
