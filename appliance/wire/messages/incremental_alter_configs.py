"""IncrementalAlterConfigs: change single configs (KIP-339). Operations: 0 set, 1 delete, 2 append, 3 subtract.

v1 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String


class AlterableConfig(Struct):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[AlterableConfig] = field()


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], api_key=44, versions=(0, 1), flexible_from=1
):
    resources: list[AlterConfigsResource] = field()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Struct, api_key=44, versions=(0, 1), flexible_from=1):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()
