"""AlterConfigs: replace all configs of a resource (KIP-133); IncrementalAlterConfigs changes single ones.

v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions=(0, 2), flexible_from=2):
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class AlterConfigsResponse(Struct, api_key=33, versions=(0, 2), flexible_from=2):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()
