"""ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1: groups of the new protocol (KIP-848).

The group's coordinator decides. Without `consumer` in `group.coordinator.rebalance.protocols` both are
UNSUPPORTED_VERSION, as in Kafka, and clients have to speak the classic protocol.
"""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.features import GROUP_VERSION, level_of
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.group_calls import coordinators_of, of_group
from appliance.server.operations import GROUP_OPERATIONS
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from appliance.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from appliance.wire.schema import Struct

PROTOCOL = "consumer"


def consumer_group_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    return {
        ApiKey.CONSUMER_GROUP_HEARTBEAT: HandlerEntry(heartbeat),
        ApiKey.CONSUMER_GROUP_DESCRIBE: HandlerEntry(describe, error=describe_failed),
    }


def heartbeat(broker: Broker, request: Request) -> Struct | Pending:
    if not _is_served(broker):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return of_group(broker, request)


def describe(broker: Broker, request: Request) -> Struct:
    if not _is_served(broker):
        return describe_failed(request, ErrorCode.UNSUPPORTED_VERSION, None)
    body = cast(ConsumerGroupDescribeRequest, request.body)
    groups = [_described(broker, group_id) for group_id in body.group_ids]
    for group in groups:
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _described(broker: Broker, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    view = coordinators_of(broker).view(group_id)
    if isinstance(view, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=view)
    return view.describe_consumer_group(group_id)


def describe_failed(request: Request, code: ErrorCode, message: str | None) -> ConsumerGroupDescribeResponse:
    """The answer when everything failed alike."""
    body = cast(ConsumerGroupDescribeRequest, request.body)
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=each, error_code=code, error_message=message) for each in body.group_ids]
    )


def _is_served(broker: Broker) -> bool:
    named = PROTOCOL in broker.config.get("group.coordinator.rebalance.protocols")
    return named and level_of(broker.image, GROUP_VERSION) > 0
