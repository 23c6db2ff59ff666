"""OffsetCommit: a group's progress.

v5 no retention time in the request · v6 leader epoch (KIP-320) · v7 static members (KIP-345) · v8 flexible · v9 KIP-848
groups, STALE_MEMBER_EPOCH · v10 topic ids in place of names
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String, Uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(since=6, default=-1, ignorable=True)
    commit_timestamp: Int64 = field(since=1, until=1, default=-1)
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    name: String = field(until=9, ignorable=True)
    topic_id: Uuid = field(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions=(0, 10), flexible_from=8):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = field(since=1, default=-1, ignorable=True)
    member_id: String = field(since=1, ignorable=True)
    group_instance_id: String | None = field(since=7, default=None)
    retention_time_ms: Int64 = field(since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: String = field(until=9, ignorable=True)
    topic_id: Uuid = field(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(Struct, api_key=8, versions=(0, 10), flexible_from=8):
    throttle_time_ms: Int32 = field(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field()
