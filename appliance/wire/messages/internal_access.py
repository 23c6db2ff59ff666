"""From the HTTP gateway to brokers, our own: ActAs.

The gateway connects as brokers do; what it asks for, it asks for somebody else.
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct
from appliance.wire.types import Int16, String

ACT_AS = 20012


class ActAsRequest(Request["ActAsResponse"], api_key=ACT_AS, versions=(0, 0), flexible_from=0):
    """From here on this connection may do what a principal may do, and no more."""

    principal: String = ""
    """`type:name`."""


class ActAsResponse(Struct, api_key=ACT_AS, versions=(0, 0), flexible_from=0):
    error_code: Int16 = 0
    error_message: String | None = None
