"""DescribeUserScramCredentials 0 from this broker's image; AlterUserScramCredentials 0 forwarded (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from appliance.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def describe(broker: Broker, request: Request) -> DescribeUserScramCredentialsResponse:
    """All users, or those that are named; null and an empty list both mean all."""
    body = cast(DescribeUserScramCredentialsRequest, request.body)
    of_user: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), kept in sorted(broker.image.scram_credentials.items()):
        of_user.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=kept.iterations))
    named = Counter(user.name for user in body.users or [])
    return DescribeUserScramCredentialsResponse(
        results=[_row(name, of_user.get(name), named[name]) for name in named or of_user],
    )


def _row(name: str, infos: list[CredentialInfo] | None, times: int) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if infos is None:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)


def alter(broker: Broker, request: Request) -> Pending:
    return forward(broker, request, alter_failed)


def alter_failed(request: Request, code: ErrorCode, message: str | None) -> AlterUserScramCredentialsResponse:
    body = cast(AlterUserScramCredentialsRequest, request.body)
    users = dict.fromkeys([one.name for one in body.deletions] + [one.name for one in body.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users]
    )


def scram_handlers() -> dict[int, HandlerEntry]:
    return {
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: HandlerEntry(describe),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: HandlerEntry(alter, error=alter_failed),
    }
