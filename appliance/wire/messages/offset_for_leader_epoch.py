"""OffsetForLeaderEpoch: where a leader epoch ends, to find the point of divergence (KIP-101, KIP-320).

v2 leader epoch fencing · v3 replica id, -2 stands for a debugging consumer that may look beyond the high watermark · v4
flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = field(since=2, default=-1, ignorable=True)
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"], api_key=23, versions=(0, 4), flexible_from=4
):
    replica_id: Int32 = field(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field()


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = field(since=1, default=-1, ignorable=True)
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: String = ""
    partitions: list[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(Struct, api_key=23, versions=(0, 4), flexible_from=4):
    throttle_time_ms: Int32 = field(since=2, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field()
