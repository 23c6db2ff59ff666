"""ShareAcknowledge, versions 1 and 2 (KIP-932): what a member says of records that it had.

- Answered when the share coordinator has everything; each partition's batches are taken over together or not at all.
- Epoch 0 opens no session here; -1 ends it, and what the member still has is for others.
v2 renewing (KIP-1222)
"""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.share_calls import (
    Sayings,
    add_hint,
    add_row,
    partitions_of,
    refusal,
    session_for,
)
from appliance.server.requests import Pending, Request
from appliance.share_groups.sessions import FINAL_EPOCH
from appliance.wire.api import ApiKey
from appliance.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def share_acknowledge_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    return {ApiKey.SHARE_ACKNOWLEDGE: HandlerEntry(handle)}


def handle(broker: Broker, request: Request) -> ShareAcknowledgeResponse | Pending:
    body = cast(ShareAcknowledgeRequest, request.body)
    wrong = refusal(body)
    if wrong is not None:
        return ShareAcknowledgeResponse(error_code=wrong[0], error_message=wrong[1])
    session = session_for(broker, request, may_open=False)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    pending = request.pending()
    sayings = Sayings(broker, request, lambda: pending.answer(_answer(broker, request, sayings)))
    sayings.begin()
    if body.share_session_epoch == FINAL_EPOCH:
        partitions_of(broker).end_session(session)
    return pending


def _answer(broker: Broker, request: Request, sayings: Sayings) -> ShareAcknowledgeResponse:
    body = cast(ShareAcknowledgeRequest, request.body)
    limits = partitions_of(broker).limits_of(body.group_id or "")
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=limits.lock_duration_ms)
    for place, error in sayings.results.items():
        row = PartitionData(partition_index=place[1], error_code=error)
        add_hint(broker, request, response, row, place, (LeaderIdAndEpoch, NodeEndpoint))
        add_row(response.responses, ShareAcknowledgeTopicResponse, place[0], row)
    return response
