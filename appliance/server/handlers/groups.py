"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2.

- What concerns one group goes to its coordinator, which says NOT_COORDINATOR where it is not, and
  COORDINATOR_LOAD_IN_PROGRESS while it is still reading its log.
- Join and sync wait for the other members; the connection's next requests wait behind them, as in Kafka.
- ListGroups: the groups that this broker coordinates; DescribeGroups before v6 calls an unknown group dead (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers import consumer_groups, find_coordinator, offsets, streams_groups
from appliance.server.handlers.group_calls import answer_or_wait, call_of, coordinators_of, of_group
from appliance.server.operations import GROUP_OPERATIONS
from appliance.server.requests import Pending, Request
from appliance.wire.api import ApiKey
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from appliance.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from appliance.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from appliance.wire.schema import Struct

NOT_FOUND_SINCE = 6


def group_handlers() -> dict[int, HandlerEntry]:
    """Handlers of all APIs of groups, by API key."""
    return {
        ApiKey.FIND_COORDINATOR: HandlerEntry(find_coordinator.handle, error=find_coordinator.failed),
        ApiKey.JOIN_GROUP: HandlerEntry(of_group),
        ApiKey.SYNC_GROUP: HandlerEntry(of_group),
        ApiKey.HEARTBEAT: HandlerEntry(of_group),
        ApiKey.LEAVE_GROUP: HandlerEntry(of_group),
        ApiKey.OFFSET_COMMIT: HandlerEntry(offsets.commit, error=offsets.commit_failed),
        ApiKey.OFFSET_FETCH: HandlerEntry(offsets.fetch, error=offsets.fetch_failed),
        ApiKey.OFFSET_DELETE: HandlerEntry(offsets.delete),
        ApiKey.DESCRIBE_GROUPS: HandlerEntry(describe, error=describe_failed),
        ApiKey.LIST_GROUPS: HandlerEntry(list_groups),
        ApiKey.DELETE_GROUPS: HandlerEntry(delete, error=delete_failed),
        **consumer_groups.consumer_group_handlers(),
        **streams_groups.streams_group_handlers(),
    }


def describe(broker: Broker, request: Request) -> Struct:
    body = cast(DescribeGroupsRequest, request.body)
    groups = [_described(broker, group_id) for group_id in body.groups]
    for group in groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and request.api_version < NOT_FOUND_SINCE:
            group.error_code, group.error_message = ErrorCode.NONE, None
        if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _described(broker: Broker, group_id: str) -> DescribedGroup:
    view = coordinators_of(broker).view(group_id)
    if isinstance(view, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=view)
    return view.describe(group_id)


def describe_failed(request: Request, code: ErrorCode, message: str | None) -> DescribeGroupsResponse:
    """The answer when everything failed alike."""
    body = cast(DescribeGroupsRequest, request.body)
    return DescribeGroupsResponse(groups=[DescribedGroup(group_id=each, error_code=code) for each in body.groups])


def list_groups(broker: Broker, request: Request) -> Struct:
    body = cast(ListGroupsRequest, request.body)
    views = coordinators_of(broker).views()
    if isinstance(views, ErrorCode):
        return ListGroupsResponse(error_code=views)
    return ListGroupsResponse(
        groups=[group for view in views for group in view.list_groups(body.states_filter, body.types_filter)]
    )


def delete(broker: Broker, request: Request) -> Struct | Pending:
    body = cast(DeleteGroupsRequest, request.body)
    group_ids = list(dict.fromkeys(body.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    return answer_or_wait(request, lambda answer: _delete_all(broker, request, group_ids, answer))


def _delete_all(broker: Broker, request: Request, group_ids: list[str], answer: Callable[[Struct], None]) -> None:
    results: dict[str, DeletableGroupResult] = {}

    def deleted(response: Struct) -> None:
        for result in cast(DeleteGroupsResponse, response).results:
            results[result.group_id] = result
        if len(results) == len(group_ids):
            answer(DeleteGroupsResponse(results=[results[group_id] for group_id in group_ids]))

    for group_id in group_ids:
        call = call_of(request, DeleteGroupsRequest(groups_names=[group_id]))
        coordinators_of(broker).submit(group_id, call, deleted, after_writes=True)


def delete_failed(request: Request, code: ErrorCode, message: str | None) -> DeleteGroupsResponse:
    """The answer when everything failed alike."""
    body = cast(DeleteGroupsRequest, request.body)
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in body.groups_names]
    )
