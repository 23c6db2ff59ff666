"""DescribeGroups, ListGroups and DeleteGroups, as far as one partition's coordinator answers them."""

from __future__ import annotations

from dataclasses import replace

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call
from appliance.groups.context import Context, GroupEffect
from appliance.groups.expiry import GroupDeleted, deletion_of, writes_of
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from appliance.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from appliance.wire.messages.list_groups import ListedGroup

GROUP_TYPE = "classic"


def describe(context: Context, group_id: str) -> DescribedGroup:
    """A group with its members; what they support only while it is stable. An unknown one is dead."""
    group = context.find(group_id)
    if group is None:
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.DEAD.value,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found.",
        )
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(context: Context, states: list[str], types: list[str]) -> list[ListedGroup]:
    """All groups in one of the given states and of one of the given types, in any case of letters; empty: any."""
    wanted_states = [state.lower() for state in states]
    if types and GROUP_TYPE not in [each.lower() for each in types]:
        return []
    listed: list[ListedGroup] = []
    for group_id in {**dict.fromkeys(context.stored.group_ids()), **context.groups}:
        if group_id in context.others and group_id not in context.groups:
            continue
        group = context.find(group_id)
        if group is not None and (not wanted_states or group.state.value.lower() in wanted_states):
            listed.append(
                ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=GROUP_TYPE,
                )
            )
    return listed


def delete(context: Context, call: Call, request: DeleteGroupsRequest) -> list[GroupEffect]:
    """Decide a DeleteGroups of exactly one group: nobody may be in it. Its offsets go with it."""
    (group_id,) = request.groups_names
    group = context.find(group_id)
    if group is None:
        return [refusal(call, ErrorCode.GROUP_ID_NOT_FOUND)]
    if group.state is not GroupState.EMPTY:
        return [refusal(call, ErrorCode.NON_EMPTY_GROUP)]
    answer = Answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group_id)]))
    writes = writes_of(group_id, deletion_of(context, group_id))
    if not writes:
        return [*group_deleted(context, group_id), answer]
    return [*writes[:-1], replace(writes[-1], answers=(answer,), follow_up=GroupDeleted())]


def group_deleted(context: Context, group_id: str) -> list[GroupEffect]:
    """The group is gone from the log; ids that were given out and have not come back are void, if nobody joined."""
    group = context.groups.get(group_id)
    if group is not None and group.state is GroupState.EMPTY:
        for member_id in list(group.pending_members):
            context.expect_nothing(group_id, member_id)
        del context.groups[group_id]
    return []
