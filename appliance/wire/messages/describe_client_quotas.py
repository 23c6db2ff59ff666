"""DescribeClientQuotas: which limits are set (KIP-546). Match types: 0 the name, 1 the default, 2 any name.

v1 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Float64, Int8, Int16, Int32, String


class ComponentData(Struct):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], api_key=48, versions=(0, 1), flexible_from=1
):
    components: list[ComponentData] = field()
    strict: Bool = False
    """Only entities with these types and no others."""


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Struct):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    entity: list[EntityData] = field()
    values: list[ValueData] = field()


class DescribeClientQuotasResponse(Struct, api_key=48, versions=(0, 1), flexible_from=1):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = field()
