"""DeleteGroups: remove empty groups with their offsets (KIP-229).

v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions=(0, 2), flexible_from=2):
    groups_names: list[String] = field()


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(Struct, api_key=42, versions=(0, 2), flexible_from=2):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = field()
