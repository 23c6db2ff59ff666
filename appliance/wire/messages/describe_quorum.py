"""DescribeQuorum: who keeps the metadata (KIP-595).

v1 times of the last fetch (KIP-836) · v2 directory ids, error messages and addresses (KIP-853)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String, UInt16, Uuid


class PartitionData(Struct):
    partition_index: Int32 = 0


class TopicData(Struct):
    topic_name: String = ""
    partitions: list[PartitionData] = field()


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], api_key=55, versions=(0, 2), flexible_from=0):
    topics: list[TopicData] = field()


class ReplicaState(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Uuid = field(since=2)
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Int64 = field(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field(since=1, default=-1, ignorable=True)


class PartitionDataResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(since=2, ignorable=True)
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


class TopicDataResponse(Struct):
    topic_name: String = ""
    partitions: list[PartitionDataResponse] = field()


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0


class Node(Struct):
    node_id: Int32 = 0
    listeners: list[Listener] = field()


class DescribeQuorumResponse(Struct, api_key=55, versions=(0, 2), flexible_from=0):
    error_code: Int16 = 0
    error_message: String | None = field(since=2, ignorable=True)
    topics: list[TopicDataResponse] = field()
    nodes: list[Node] = field(since=2)
