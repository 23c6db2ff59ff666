"""ApiVersions, versions 0 to 4: what this broker serves, and in which versions.

- Answered before anything else about the client is known. A version that is not served is answered in version 0 by the
  dispatcher (KIP-511).
- Produce is advertised from version 0, although versions 0 to 2 are refused: librdkafka does not compress for a broker
  that does not name version 0 (KAFKA-18659).
- Versions that Kafka calls unstable are not advertised.
"""

from __future__ import annotations

from collections.abc import Iterable

from appliance.server.context import Broker
from appliance.server.requests import Request
from appliance.wire.api import APIS, ApiKey
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

FIRST_OWN_API_KEY = 20_000
"""APIs between our own processes; never advertised."""


def served_versions(api_keys: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The versions in which a server takes the given APIs."""
    return {key: (APIS[key].min_version, APIS[key].max_stable_version) for key in api_keys}


def handle(broker: Broker, request: Request) -> ApiVersionsResponse:
    dispatcher = request.connection.server.dispatcher
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=0 if key == ApiKey.PRODUCE else low, max_version=high)
            for key, (low, high) in sorted(dispatcher.advertised.items())
            if key < FIRST_OWN_API_KEY
        ]
    )
