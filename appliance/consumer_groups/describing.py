"""ConsumerGroupDescribe, and consumer groups in ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.context import AnyEffect, ConsumerContext
from appliance.consumer_groups.stored import ConsumerGroup
from appliance.consumer_groups.targets import preferred_assignor
from appliance.coordinator.calls import Answer, Call, Write
from appliance.groups.expiry import deletion_of, writes_of
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.groups.subscription import CONSUMER_PROTOCOL_TYPE
from appliance.wire.messages import describe_groups
from appliance.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from appliance.wire.messages.list_groups import ListedGroup

GROUP_TYPE = "consumer"
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(context: ConsumerContext, group_id: str) -> DescribedGroup:
    """State, members, what they have and are to have."""
    if group_id == "":
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.find(group_id)
    if group is None:
        message = f"Group {group_id} is not a consumer group." if group_id in context.stored else None
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=message or f"Group {group_id} not found.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group.members, context.config.assignors),
        members=[_member(context, group, member_id) for member_id in group.members],
    )


def _member(context: ConsumerContext, group: ConsumerGroup, member_id: str) -> Member:
    member, current = group.members[member_id], group.current_of(member_id)
    return Member(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_shown(context, current.assigned),
        target_assignment=_shown(context, group.targets.get(member_id, {})),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _shown(context: ConsumerContext, partitions: Mapping[uuid.UUID, Collection[int]]) -> Assignment:
    topics = context.world().topics_by_id
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(partitions[topic_id])
            )
            for topic_id in sorted(partitions)
            if topic_id in topics
        ]
    )


def describe_as_classic(group_id: str) -> describe_groups.DescribedGroup:
    """What DescribeGroups says of a consumer group: it is none of its own."""
    return describe_groups.DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a classic group.",
    )


def list_groups(context: ConsumerContext, states: list[str], types: list[str]) -> list[ListedGroup]:
    """All consumer groups in one of these states, if consumer groups are asked for; empty: any."""
    if types and GROUP_TYPE not in [each.lower() for each in types]:
        return []
    wanted = [state.lower() for state in states]
    return [
        ListedGroup(group_id=group_id, protocol_type=CONSUMER_PROTOCOL_TYPE, group_state=state, group_type=GROUP_TYPE)
        for group_id, state in [(each.group_id, each.state_name) for each in context.stored.consumer_groups.values()]
        if (not wanted or state.lower() in wanted) and group_id not in context.classic.groups
    ]


def delete(context: ConsumerContext, group: ConsumerGroup, call: Call, request: DeleteGroupsRequest) -> list[AnyEffect]:
    """Decide a DeleteGroups of one consumer group: nobody may be in it. Its offsets go with it."""
    if not group.is_empty:
        return [refusal(call, ErrorCode.NON_EMPTY_GROUP)]
    records = [*deletion_of(context.classic, group.group_id), *group.tombstones()]
    answer = Answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group.group_id)]))
    writes: list[Write[object]] = list(writes_of(group.group_id, records))  # type: ignore[arg-type]
    writes[-1] = replace(writes[-1], answers=(answer,))
    return list(writes)  # type: ignore[arg-type]
