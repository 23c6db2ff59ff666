"""JoinGroup: become or stay a member of a classic group.

In v0 there is no rebalance timeout: the session timeout stands for it.

v1 rebalance timeout · v4 the first join is answered with MEMBER_ID_REQUIRED and an id (KIP-394) · v5 static members
(KIP-345) · v6 flexible · v7 protocol type in the answer (KIP-559) · v8 reason (KIP-800) · v9 a leader may be told to
skip the assignment (KIP-814)
"""

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
