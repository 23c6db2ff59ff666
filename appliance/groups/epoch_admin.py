"""What ListGroups, DescribeGroups and DeleteGroups say of groups that go from epoch to epoch, of whichever kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Effect
from appliance.groups.context import Context
from appliance.groups.epoch_groups import EpochGroup
from appliance.groups.expiry import deletion_of, writes_of
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from appliance.wire.messages.describe_groups import DescribedGroup
from appliance.wire.messages.list_groups import ListedGroup


def list_groups(
    groups: Iterable[EpochGroup[Any, Any, Any]], group_type: str, states: list[str], types: list[str]
) -> list[ListedGroup]:
    """Those in one of these states, if groups of their type are asked for; empty: any."""
    if types and group_type not in [each.lower() for each in types]:
        return []
    wanted = [state.lower() for state in states]
    return [
        ListedGroup(group_id=group_id, protocol_type=group_type, group_state=state, group_type=group_type)
        for group_id, state in [(each.group_id, each.state_name) for each in groups]
        if not wanted or state.lower() in wanted
    ]


def describe_as_classic(group_id: str) -> DescribedGroup:
    """What DescribeGroups says of such a group: it is none of its own."""
    return DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a classic group.",
    )


def delete(context: Context, group: EpochGroup[Any, Any, Any], call: Call) -> list[Effect[Any]]:
    """Decide a DeleteGroups of one group: nobody may be in it. Its offsets go with it."""
    if not group.is_empty:
        return [refusal(call, ErrorCode.NON_EMPTY_GROUP)]
    records: list[Any] = [*deletion_of(context, group.group_id), *group.tombstones()]
    answer = Answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group.group_id)]))
    *writes, last = writes_of(group.group_id, records)
    return [*writes, replace(last, answers=(answer,))]
