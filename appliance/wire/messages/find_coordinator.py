"""FindCoordinator: who coordinates a group (key type 0), a transactional id (1) or a share group's partition (2).

v1 key type, error message · v3 flexible · v4 many keys in one request (KIP-699) · v5 TRANSACTION_ABORTABLE (KIP-890) ·
v6 share groups, key "group:topic id:partition" (KIP-932)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Request["FindCoordinatorResponse"], api_key=10, versions=(0, 6), flexible_from=3):
    key: String = field(until=3)
    key_type: Int8 = field(since=1)
    coordinator_keys: list[String] = field(since=4)


class Coordinator(Struct):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class FindCoordinatorResponse(Struct, api_key=10, versions=(0, 6), flexible_from=3):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = field(until=3)
    error_message: String | None = field(since=1, until=3, ignorable=True)
    node_id: Int32 = field(until=3)
    host: String = field(until=3)
    port: Int32 = field(until=3)
    coordinators: list[Coordinator] = field(since=4)
