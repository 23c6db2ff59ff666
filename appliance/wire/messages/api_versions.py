"""ApiVersions: what the broker speaks. The first request of most clients, answered before authentication.

Its response never has a tag section in the header, whatever the version. An unknown version is answered in v0 with
UNSUPPORTED_VERSION and the range of this API (KIP-511).

v3 flexible, name and version of the client's software (KIP-511), features (KIP-584) · v4 a feature's lowest version may
be 0 (KAFKA-17011)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions=(0, 4), flexible_from=3):
    client_software_name: String = field(since=3, ignorable=True)
    client_software_version: String = field(since=3, ignorable=True)


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Struct, api_key=18, versions=(0, 4), flexible_from=3):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(since=3, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field(since=3, default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(since=3, tag=2, ignorable=True)
    zk_migration_ready: Bool = field(since=3, tag=3, ignorable=True)
