"""ListConfigResources: names of what has configs, first of client metrics only (KIP-1142).

v1 all types of resources
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"], api_key=74, versions=(0, 1), flexible_from=0):
    resource_types: list[Int8] = field(since=1)
    """None of them: all."""


class ConfigResource(Struct):
    resource_name: String = ""
    resource_type: Int8 = field(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Struct, api_key=74, versions=(0, 1), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = field()
