"""DescribeAcls 1-3 from this broker's image; CreateAcls and DeleteAcls 1-3 forwarded; and ActAs, ours."""

from __future__ import annotations

from typing import cast

from appliance.base.errors import ErrorCode
from appliance.controller.acls import NO_AUTHORIZER, describe_acls, has_authorizer
from appliance.security.principals import parse_principal
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.forwarding import forward
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from appliance.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from appliance.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from appliance.wire.messages.internal_access import ACT_AS, ActAsRequest, ActAsResponse


def describe(broker: Broker, request: Request) -> DescribeAclsResponse:
    if not has_authorizer(broker.config):
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return describe_acls(cast(DescribeAclsRequest, request.body), broker.image)


def create(broker: Broker, request: Request) -> Pending | CreateAclsResponse:
    if not has_authorizer(broker.config):
        return create_failed(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return forward(broker, request, create_failed)


def create_failed(request: Request, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    body = cast(CreateAclsRequest, request.body)
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in body.creations]
    )


def delete(broker: Broker, request: Request) -> Pending | DeleteAclsResponse:
    if not has_authorizer(broker.config):
        return delete_failed(request, ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return forward(broker, request, delete_failed)


def delete_failed(request: Request, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    body = cast(DeleteAclsRequest, request.body)
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=code, error_message=message) for _ in body.filters]
    )


def act_as(broker: Broker, request: Request) -> ActAsResponse:
    """For super users alone: they may do everything. Without an authorizer it makes no difference who somebody is."""
    if request.access is None:
        return ActAsResponse()
    if not request.access.is_super_user:
        return ActAsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    connection = request.connection
    try:
        connection.principal = parse_principal(cast(ActAsRequest, request.body).principal)
    except ValueError as error:
        return ActAsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    # What was learned of its requests was allowed to somebody else.
    connection.fast = connection.fast_many = connection.fast_fetch = connection.follower_fetch = None
    return ActAsResponse()


def acl_handlers() -> dict[int, HandlerEntry]:
    return {
        ApiKey.DESCRIBE_ACLS: HandlerEntry(describe),
        ApiKey.CREATE_ACLS: HandlerEntry(create, error=create_failed),
        ApiKey.DELETE_ACLS: HandlerEntry(delete, error=delete_failed),
        ACT_AS: HandlerEntry(act_as),
    }
