"""join_group"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Bytes, Int16, Int32, String


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions=(0, 9), flexible_from=6):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Int32 = field(since=1, default=-1, ignorable=True)
    member_id: String = ""
    group_instance_id: String | None = field(since=5, default=None)
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: String | None = field(since=8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: String | None = field(since=5, default=None, ignorable=True)
    metadata: Bytes = b""


class JoinGroupResponse(Struct, api_key=11, versions=(0, 9), flexible_from=6):
    throttle_time_ms: Int32 = field(since=2, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(since=7, default=None, ignorable=True)
    protocol_name: String | None = field(nullable_since=7)
    leader: String = ""
    skip_assignment: Bool = field(since=9)
    member_id: String = ""
    members: list[JoinGroupResponseMember] = field()
