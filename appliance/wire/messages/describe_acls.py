"""DescribeAcls: which access control lists there are.

v1 patterns · v2 flexible · v3 resources of type USER
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class DescribeAclsRequest(Request["DescribeAclsResponse"], api_key=29, versions=(1, 3), flexible_from=2):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Int8 = 3
    """1 any, 2 whatever holds for the name, 3 literal, 4 prefixed."""
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
    """1 any, 2 deny, 3 allow."""


class AclDescription(Struct):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = field()


class DescribeAclsResponse(Struct, api_key=29, versions=(1, 3), flexible_from=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = field()
