"""Where the partitions of a group can be asked for: what its members tell each other (`application.server`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from appliance.streams_groups.stored import Current, MemberInfo, Tasks
from appliance.wire.messages.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition, Topology


def endpoints(
    topology: Topology,
    topics: Mapping[str, Any],
    members: Mapping[str, MemberInfo],
    held: Iterable[tuple[str, Current]],
) -> list[EndpointToPartitions]:
    """The partitions of source topics that each member with an endpoint runs, and of which it keeps copies."""
    sources = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in topology.subtopologies
    }
    rows: list[EndpointToPartitions] = []
    for member_id, current in sorted(held, key=lambda row: row[0]):
        member = members.get(member_id)
        if member is None or member.user_endpoint is None:
            continue
        host, port = member.user_endpoint
        rows.append(
            EndpointToPartitions(
                user_endpoint=Endpoint(host=host, port=port),
                active_partitions=_partitions(current.assigned.active, sources, topics),
                standby_partitions=_partitions(current.assigned.standby, sources, topics),
            )
        )
    return rows


def _partitions(tasks: Tasks, sources: Mapping[str, list[str]], topics: Mapping[str, Any]) -> list[TopicPartition]:
    found: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        for name in sources.get(subtopology, ()):
            topic = topics.get(name)
            if topic is not None and partition < len(topic.partitions):
                found.setdefault(name, []).append(partition)
    return [TopicPartition(topic=name, partitions=found[name]) for name in sorted(found)]
