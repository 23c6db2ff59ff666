"""SaslAuthenticate: the tokens of a SASL exchange (KIP-152).

v1 lifetime of the session (KIP-368) · v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], api_key=36, versions=(0, 2), flexible_from=2):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Struct, api_key=36, versions=(0, 2), flexible_from=2):
    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = field(since=1, ignorable=True)
