"""StreamsGroupDescribe, and groups of Kafka Streams in ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from dataclasses import replace

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Write
from appliance.groups.expiry import deletion_of, writes_of
from appliance.groups.refusals import refusal
from appliance.groups.states import GroupState
from appliance.streams_groups import stored
from appliance.streams_groups.context import EveryEffect, StreamsContext
from appliance.streams_groups.records import rows_of
from appliance.streams_groups.stored import NOTHING, StreamsGroup
from appliance.wire.messages import describe_groups
from appliance.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from appliance.wire.messages.list_groups import ListedGroup
from appliance.wire.messages.streams_group_describe import Assignment, DescribedGroup, Member, Subtopology, Topology
from appliance.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TopicInfo

GROUP_TYPE = PROTOCOL_TYPE = "streams"


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


def describe_as_classic(group_id: str) -> describe_groups.DescribedGroup:
    """What DescribeGroups says of a group of Kafka Streams: it is none of its own."""
    return describe_groups.DescribedGroup(
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a classic group.",
    )


def list_groups(context: StreamsContext, states: list[str], types: list[str]) -> list[ListedGroup]:
    """All groups of this type in one of these states, if they are asked for; empty: any."""
    if types and GROUP_TYPE not in [each.lower() for each in types]:
        return []
    wanted = [state.lower() for state in states]
    return [
        ListedGroup(group_id=each.group_id, protocol_type=PROTOCOL_TYPE, group_state=state, group_type=GROUP_TYPE)
        for each, state in [(each, each.state_name) for each in context.stored.streams_groups.values()]
        if not wanted or state.lower() in wanted
    ]


def delete(context: StreamsContext, group: StreamsGroup, call: Call) -> list[EveryEffect]:
    """Decide a DeleteGroups of one group: nobody may be in it. Its offsets go with it."""
    if not group.is_empty:
        return [refusal(call, ErrorCode.NON_EMPTY_GROUP)]
    records = [*deletion_of(context.classic, group.group_id), *group.tombstones()]
    answer = Answer(call, DeleteGroupsResponse(results=[DeletableGroupResult(group_id=group.group_id)]))
    writes: list[Write[object]] = list(writes_of(group.group_id, records))  # type: ignore[arg-type]
    writes[-1] = replace(writes[-1], answers=(answer,))
    return list(writes)  # type: ignore[arg-type]
