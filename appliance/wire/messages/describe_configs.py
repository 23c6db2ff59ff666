"""DescribeConfigs: configs of topics, brokers and groups with source, synonyms and documentation.

v1 synonyms and sources (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: list[String] | None = field()


class DescribeConfigsRequest(Request["DescribeConfigsResponse"], api_key=32, versions=(0, 4), flexible_from=4):
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: Bool = field(since=1)
    include_documentation: Bool = field(since=3)


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    is_default: Bool = field(until=0)
    config_source: Int8 = field(since=1, default=-1, ignorable=True)
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = field(since=1, ignorable=True)
    config_type: Int8 = field(since=3, ignorable=True)
    documentation: String | None = field(since=3, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: list[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(Struct, api_key=32, versions=(0, 4), flexible_from=4):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = field()
