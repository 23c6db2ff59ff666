"""An answer that says nothing but an error, in the form that each request about share groups has for it."""

from __future__ import annotations

from collections.abc import Callable

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call
from appliance.groups.refusals import refuse as refuse_other
from appliance.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from appliance.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from appliance.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from appliance.wire.schema import Struct

IS_OURS: dict[type[Struct], Callable[[ErrorCode, str | None], Struct]] = {
    ShareGroupHeartbeatRequest: lambda error, text: ShareGroupHeartbeatResponse(error_code=error, error_message=text),
    AlterShareGroupOffsetsRequest: lambda error, text: AlterShareGroupOffsetsResponse(
        error_code=error, error_message=text
    ),
    DeleteShareGroupOffsetsRequest: lambda error, text: DeleteShareGroupOffsetsResponse(
        error_code=error, error_message=text
    ),
}


def refuse(call: Call, error: ErrorCode, text: str | None = None) -> Struct:
    """The answer to `call` with this error."""
    form = IS_OURS.get(type(call.request))
    return refuse_other(call, error) if form is None else form(error, text)
