"""DescribeClientQuotas 0-1 from this broker's image; AlterClientQuotas 0-1 forwarded (KIP-546)."""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.client_quotas import describe_quotas
from appliance.server.context import Broker
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataResponse,
)
from appliance.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse


def describe(broker: Broker, request: Request) -> DescribeClientQuotasResponse:
    return describe_quotas(cast(DescribeClientQuotasRequest, request.body), broker.image)


def alter(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, alter_failed)


def alter_failed(request: Request, code: ErrorCode, message: str | None) -> AlterClientQuotasResponse:
    body = cast(AlterClientQuotasRequest, request.body)
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResponse(error_code=code, error_message=message, entity=entry.entity) for entry in body.entries
        ]
    )
