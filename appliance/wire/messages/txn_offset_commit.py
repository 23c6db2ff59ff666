"""TxnOffsetCommit: offsets that count once their transaction commits (KIP-98).

v2 leader epoch (KIP-320) · v3 flexible, group members are fenced (KIP-447) · v4 TRANSACTION_ABORTABLE (KIP-890) · v5
the group joins the transaction implicitly (KIP-890)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = field(since=2, default=-1, ignorable=True)
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field()


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], api_key=28, versions=(0, 5), flexible_from=3):
    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id: Int32 = field(since=3, default=-1)
    member_id: String = field(since=3)
    group_instance_id: String | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: String = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(Struct, api_key=28, versions=(0, 5), flexible_from=3):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field()
