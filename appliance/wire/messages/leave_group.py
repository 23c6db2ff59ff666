"""LeaveGroup: members leave a classic group.

v3 many members at once, static ones too (KIP-345) · v4 flexible · v5 reason (KIP-800)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class MemberIdentity(Struct):
    member_id: String = ""
    group_instance_id: String | None = None
    reason: String | None = field(since=5, default=None, ignorable=True)


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions=(0, 5), flexible_from=4):
    group_id: String = ""
    member_id: String = field(until=2)
    members: list[MemberIdentity] = field(since=3)


class MemberResponse(Struct):
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: Int16 = 0


class LeaveGroupResponse(Struct, api_key=13, versions=(0, 5), flexible_from=4):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = 0
    members: list[MemberResponse] = field(since=3)
