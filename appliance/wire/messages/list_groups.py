"""ListGroups: the groups that a broker coordinates.

v3 flexible · v4 filter by state (KIP-518) · v5 filter by type (KIP-848)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions=(0, 5), flexible_from=3):
    states_filter: list[String] = field(since=4)
    types_filter: list[String] = field(since=5)


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: String = field(since=4, ignorable=True)
    group_type: String = field(since=5, ignorable=True)


class ListGroupsResponse(Struct, api_key=16, versions=(0, 5), flexible_from=3):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    error_code: Int16 = 0
    groups: list[ListedGroup] = field()
