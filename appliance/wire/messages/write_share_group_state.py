"""WriteShareGroupState: what has changed of partitions of a share group (KIP-932); between brokers.

v1 how many records are done with (KIP-1226)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, String, Uuid


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(since=1, ignorable=True, default=-1)
    state_batches: list[StateBatch] = field()


class WriteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class WriteShareGroupStateRequest(
    Request["WriteShareGroupStateResponse"], api_key=85, versions=(0, 1), flexible_from=0
):
    group_id: String = ""
    topics: list[WriteStateData] = field()


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class WriteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field()


class WriteShareGroupStateResponse(Struct, api_key=85, versions=(0, 1), flexible_from=0):
    results: list[WriteStateResult] = field()
