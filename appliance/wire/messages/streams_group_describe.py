"""StreamsGroupDescribe: state, topology, members and assignments of groups of Kafka Streams (KIP-1071)."""

from __future__ import annotations

from appliance.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String


class StreamsGroupDescribeRequest(
    Request["StreamsGroupDescribeResponse"], api_key=89, versions=(0, 0), flexible_from=0
):
    group_ids: list[String] = field()
    include_authorized_operations: Bool = False


class Subtopology(Struct):
    subtopology_id: String = ""
    source_topics: list[String] = field()
    repartition_sink_topics: list[String] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_source_topics: list[TopicInfo] = field()


class Topology(Struct):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] | None = None


class Assignment(Struct):
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


class Member(Struct):
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = field()
    task_offsets: list[TaskOffset] = field()
    task_end_offsets: list[TaskOffset] = field()
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    is_classic: Bool = False


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    topology: Topology | None = None
    members: list[Member] = field()
    authorized_operations: Int32 = -(2**31)


class StreamsGroupDescribeResponse(Struct, api_key=89, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()
