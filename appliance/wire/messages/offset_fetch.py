"""OffsetFetch: what a group has committed.

v2 null topics for all of them, an error for the whole group · v5 leader epoch (KIP-320) · v6 flexible · v7 only stable
offsets: UNSTABLE_OFFSET_COMMIT while a transaction is open (KIP-447) · v8 many groups in one request (KIP-709) · v9
member id and epoch of KIP-848 groups · v10 topic ids in place of names
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String, Uuid


class OffsetFetchRequestTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = field()


class OffsetFetchRequestTopics(Struct):
    name: String = field(until=9, ignorable=True)
    topic_id: Uuid = field(since=10, ignorable=True)
    partition_indexes: list[Int32] = field()


class OffsetFetchRequestGroup(Struct):
    group_id: String = ""
    member_id: String | None = field(since=9, default=None, ignorable=True)
    member_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field()


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions=(0, 10), flexible_from=6):
    group_id: String = field(until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = field(since=8)
    require_stable: Bool = field(since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(since=5, default=-1, ignorable=True)
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetFetchResponsePartition] = field()


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: String = field(until=9, ignorable=True)
    topic_id: Uuid = field(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field()


class OffsetFetchResponseGroup(Struct):
    group_id: String = ""
    topics: list[OffsetFetchResponseTopics] = field()
    error_code: Int16 = 0


class OffsetFetchResponse(Struct, api_key=9, versions=(0, 10), flexible_from=6):
    throttle_time_ms: Int32 = field(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(until=7)
    error_code: Int16 = field(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(since=8)
