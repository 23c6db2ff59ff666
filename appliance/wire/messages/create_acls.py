"""CreateAcls: new lines of access control lists.

v1 patterns · v2 flexible · v3 resources of type USER
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    resource_pattern_type: Int8 = 3
    """3 literal, 4 prefixed."""
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
    """2 deny, 3 allow."""


class CreateAclsRequest(Request["CreateAclsResponse"], api_key=30, versions=(1, 3), flexible_from=2):
    creations: list[AclCreation] = field()


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""


class CreateAclsResponse(Struct, api_key=30, versions=(1, 3), flexible_from=2):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = field()
    """In the order of the creations."""
