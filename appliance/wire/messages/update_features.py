"""UpdateFeatures: raise or lower the level of a feature (KIP-584).

v1 kinds of downgrades, validate only (KIP-778) · v2 one error for all
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String


class FeatureUpdateKey(Struct):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = field(until=0)
    upgrade_type: Int8 = field(since=1, default=1)
    """1 only up, 2 down without loss, 3 down in any case."""


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], api_key=57, versions=(0, 2), flexible_from=0):
    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: Bool = field(since=1)


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class UpdateFeaturesResponse(Struct, api_key=57, versions=(0, 2), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[UpdatableFeatureResult] = field(until=1, ignorable=True)
