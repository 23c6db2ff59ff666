"""ListOffsets: the offset for a timestamp, or one of the special timestamps.

-1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest local, -5 latest tiered, -6 earliest not yet uploaded.

v1 one offset with its timestamp · v2 isolation level · v4 leader epoch fencing (KIP-320) · v5 OFFSET_NOT_AVAILABLE · v6
flexible · v7 -3 (KIP-734) · v8 -4 (KIP-405) · v9 -5 (KIP-1005) · v10 a timeout for answers that need the tier
(KIP-1075) · v11 -6 (KIP-1023)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, String


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = field(since=4, default=-1, ignorable=True)
    timestamp: Int64 = 0
    max_num_offsets: Int32 = field(until=0, default=1)


class ListOffsetsTopic(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartition] = field()


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions=(0, 11), flexible_from=6):
    replica_id: Int32 = 0
    isolation_level: Int8 = field(since=2)
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: Int32 = field(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: list[Int64] = field(until=0)
    timestamp: Int64 = field(since=1, default=-1)
    offset: Int64 = field(since=1, default=-1)
    leader_epoch: Int32 = field(since=4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(Struct, api_key=2, versions=(0, 11), flexible_from=6):
    throttle_time_ms: Int32 = field(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field()
