"""AlterClientQuotas: limits for users, clients and addresses (KIP-546).

v1 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Float64, Int16, Int32, String


class EntityData(Struct):
    entity_type: String = ""
    """`user`, `client-id` or `ip`."""
    entity_name: String | None = ""
    """Null for whoever has no quota of its own."""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: list[EntityData] = field()
    ops: list[OpData] = field()


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"], api_key=49, versions=(0, 1), flexible_from=1):
    entries: list[EntryData] = field()
    validate_only: Bool = False


class EntryDataResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: list[EntityData] = field()


class AlterClientQuotasResponse(Struct, api_key=49, versions=(0, 1), flexible_from=1):
    throttle_time_ms: Int32 = 0
    entries: list[EntryDataResponse] = field()
