"""ReadShareGroupStateSummary: the start offsets of a share group (KIP-932); between brokers.

v1 how many records are done with (KIP-1226)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String, Uuid


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class ReadShareGroupStateSummaryRequest(
    Request["ReadShareGroupStateSummaryResponse"], api_key=87, versions=(0, 1), flexible_from=0
):
    group_id: String = ""
    topics: list[ReadStateSummaryData] = field()


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(since=1, ignorable=True, default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field()


class ReadShareGroupStateSummaryResponse(Struct, api_key=87, versions=(0, 1), flexible_from=0):
    results: list[ReadStateSummaryResult] = field()
