"""DescribeTopicPartitions: partitions of topics, page by page, with eligible leader replicas (KIP-966)."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String, Uuid


class TopicRequest(Struct):
    name: String = ""


class Cursor(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], api_key=75, versions=(0, 0), flexible_from=0
):
    topics: list[TopicRequest] = field()
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = field()


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = -(2**31)


class CursorResponse(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsResponse(Struct, api_key=75, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: CursorResponse | None = None
