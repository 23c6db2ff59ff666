"""SyncGroup: the leader of a classic group hands out the assignment, each member gets its part.

v3 static members (KIP-345) · v4 flexible · v5 protocol type and name, to be checked by the coordinator (KIP-559)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bytes, Int16, Int32, String


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions=(0, 5), flexible_from=4):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: String | None = field(since=3, default=None)
    protocol_type: String | None = field(since=5, default=None, ignorable=True)
    protocol_name: String | None = field(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(Struct, api_key=14, versions=(0, 5), flexible_from=4):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = 0
    protocol_type: String | None = field(since=5, default=None, ignorable=True)
    protocol_name: String | None = field(since=5, default=None, ignorable=True)
    assignment: Bytes = b""
