"""ConsumerGroupDescribe."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping

from appliance.base.errors import ErrorCode
from appliance.consumer_groups.context import ConsumerContext
from appliance.consumer_groups.stored import ConsumerGroup
from appliance.consumer_groups.targets import preferred_assignor
from appliance.wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(context: ConsumerContext, group_id: str) -> DescribedGroup:
    """State, members, what they have and are to have."""
    if group_id == "":
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.committed(group_id)
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
