"""StreamsGroupHeartbeat: join, stay in and leave a group of Kafka Streams (KIP-1071).

Member epoch 0 joins, -1 leaves, -2 leaves for a while (static member). A null field has not changed. A task is a
partition of a subtopology.
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, Int64, String, UInt16


class KeyValue(Struct):
    key: String = ""
    value: String = ""


class TopicInfo(Struct):
    name: String = ""
    partitions: Int32 = 0
    """0: as many as the subtopology has tasks."""
    replication_factor: Int16 = 0
    """0: as many as is the broker's default."""
    topic_configs: list[KeyValue] = field()


class CopartitionGroup(Struct):
    source_topics: list[Int16] = field()
    """Places in the subtopology's list of the same name."""
    source_topic_regex: list[Int16] = field()
    repartition_source_topics: list[Int16] = field()


class Subtopology(Struct):
    subtopology_id: String = ""
    source_topics: list[String] = field()
    source_topic_regex: list[String] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[String] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


class Topology(Struct):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = field()


class TaskIds(Struct):
    subtopology_id: String = ""
    partitions: list[Int32] = field()


class Endpoint(Struct):
    host: String = ""
    port: UInt16 = 0


class TaskOffset(Struct):
    subtopology_id: String = ""
    partition: Int32 = 0
    offset: Int64 = 0


class StreamsGroupHeartbeatRequest(
    Request["StreamsGroupHeartbeatResponse"], api_key=88, versions=(0, 0), flexible_from=0
):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    endpoint_information_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: String | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: Bool = False


class Status(Struct):
    status_code: Int8 = 0
    status_detail: String = ""


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = field()


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = field()
    active_partitions: list[TopicPartition] = field()
    standby_partitions: list[TopicPartition] = field()


class StreamsGroupHeartbeatResponse(Struct, api_key=88, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int32 = 0
    task_offset_interval_ms: Int32 = 0
    status: list[Status] | None = field()
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
