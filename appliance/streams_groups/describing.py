"""StreamsGroupDescribe."""

from __future__ import annotations

from appliance.base.errors import ErrorCode
from appliance.streams_groups import stored
from appliance.streams_groups.context import StreamsContext
from appliance.streams_groups.records import rows_of
from appliance.streams_groups.stored import NOTHING, StreamsGroup
from appliance.wire.messages.streams_group_describe import Assignment, DescribedGroup, Member, Subtopology, Topology
from appliance.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TopicInfo

GROUP_TYPE = "streams"


def describe(context: StreamsContext, group_id: str) -> DescribedGroup:
    """State, topology, members, what they have and are to have."""
    group = context.find(group_id)
    if group is None:
        message = f"Group {group_id} is not a streams group." if group_id in context.stored else None
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
        topology=_topology(context, group),
        members=[_member(group, member_id) for member_id in group.members],
    )


def _topology(context: StreamsContext, group: StreamsGroup) -> Topology | None:
    """With the numbers of partitions that internal topics have come to."""
    if group.topology is None:
        return None
    topics = context.world().topics
    rows: list[Subtopology] = []
    for each in group.topology.subtopologies:
        row = Subtopology(
            subtopology_id=each.subtopology_id,
            source_topics=sorted(each.source_topics),
            repartition_sink_topics=sorted(each.repartition_sink_topics),
            state_changelog_topics=[_copy(one) for one in each.state_changelog_topics],
            repartition_source_topics=[_copy(one) for one in each.repartition_source_topics],
        )
        for topic in [*row.state_changelog_topics, *row.repartition_source_topics]:
            if topic.name in topics:
                topic.partitions = len(topics[topic.name].partitions)
        rows.append(row)
    return Topology(epoch=group.topology.epoch, subtopologies=rows)


def _copy(topic: TopicInfo) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=topic.topic_configs,
    )


def _member(group: StreamsGroup, member_id: str) -> Member:
    member, current = group.members[member_id], group.current_of(member_id)
    endpoint = member.user_endpoint
    return Member(
        member_id=member_id,
        member_epoch=current.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags],
        assignment=_shown(current.assigned),
        target_assignment=_shown(group.targets.get(member_id, NOTHING)),
    )


def _shown(tasks: stored.Assignment) -> Assignment:
    return Assignment(
        active_tasks=rows_of(tasks.active), standby_tasks=rows_of(tasks.standby), warmup_tasks=rows_of(tasks.warmup)
    )
