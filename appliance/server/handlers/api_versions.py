"""ApiVersions, versions 0 to 4: what this broker serves, and in which versions.

- Answered before anything else about the client is known. A version that is not served is answered in version 0 by the
  dispatcher (KIP-511).
- Produce and Fetch are served from version 0, for clients older than record batches; all others take the newest that
  they know. (librdkafka does not compress for a broker that does not name version 0 of Produce, KAFKA-18659.)
- From v3 on a client says what it is; a name or version of other characters than Kafka's is INVALID_REQUEST.
- Versions that Kafka calls unstable are not advertised.
- Features are those of Kafka 4.3 that are served here: with transaction.version 2 clients follow the second version of
  transactions (KIP-890), with group.version 1 there are consumer groups (KIP-848), with share.version 1 share groups
  (KIP-932), with streams.version 1 groups of Kafka Streams (KIP-1071). Before v4 none is named whose lowest version is
  0, which broke clients (KAFKA-17011).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.features import FEATURES, level_of
from appliance.server.context import Broker
from appliance.server.requests import Request
from appliance.wire.api import APIS
from appliance.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

LOWEST_MAY_BE_ZERO_SINCE = 4
SOFTWARE_SINCE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
"""Names and versions of clients' software (KIP-511)."""
FIRST_OWN_API_KEY = 20_000
"""APIs between our own processes; never advertised."""


def served_versions(api_keys: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The versions in which a server takes the given APIs."""
    return {key: (APIS[key].min_version, APIS[key].max_stable_version) for key in api_keys}


def handle(broker: Broker, request: Request) -> ApiVersionsResponse:
    body = cast(ApiVersionsRequest, request.body)
    if request.api_version >= SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.api_version >= SOFTWARE_SINCE:
        request.connection.software = (body.client_software_name, body.client_software_version)
    dispatcher = request.connection.server.dispatcher
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(dispatcher.advertised.items())
            if key < FIRST_OWN_API_KEY
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=feature.lowest, max_version=feature.highest)
            for name, feature in FEATURES.items()
            if feature.lowest or request.api_version >= LOWEST_MAY_BE_ZERO_SINCE
        ],
        finalized_features_epoch=max(0, broker.image.position),
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, level_of(broker.image, name)) for name in FEATURES)
            if level
        ],
    )
