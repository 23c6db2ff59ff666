"""DescribeGroups: state and members of classic groups.

v3 authorized operations (KIP-430) · v4 static members (KIP-345) · v5 flexible · v6 GROUP_ID_NOT_FOUND and an error
message (KIP-1043)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Bytes, Int16, Int32, String


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], api_key=15, versions=(0, 6), flexible_from=5):
    groups: list[String] = field()
    include_authorized_operations: Bool = field(since=3)


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: String | None = field(since=4, default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = field(since=6, default=None)
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = field()
    authorized_operations: Int32 = field(since=3, default=-(2**31))


class DescribeGroupsResponse(Struct, api_key=15, versions=(0, 6), flexible_from=5):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    groups: list[DescribedGroup] = field()
