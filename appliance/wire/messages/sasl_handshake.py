"""SaslHandshake: agree on a SASL mechanism. Never flexible.

v1 tokens follow in SaslAuthenticate requests instead of bare frames (KIP-152)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, String


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions=(0, 1)):
    mechanism: String = ""


class SaslHandshakeResponse(Struct, api_key=17, versions=(0, 1)):
    error_code: Int16 = 0
    mechanisms: list[String] = field()
