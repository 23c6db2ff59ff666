"""DeleteAcls: what filters let through goes.

v1 patterns · v2 flexible · v3 resources of type USER
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    """1 any, 2 whatever holds for the name, 3 literal, 4 prefixed."""
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Request["DeleteAclsResponse"], api_key=31, versions=(1, 3), flexible_from=2):
    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(Struct, api_key=31, versions=(1, 3), flexible_from=2):
    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field()
    """In the order of the filters."""
