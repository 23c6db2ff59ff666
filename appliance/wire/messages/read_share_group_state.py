"""ReadShareGroupState: the state of partitions of a share group, for a new leader (KIP-932); between brokers."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, String, Uuid


class PartitionData(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class ReadShareGroupStateRequest(Request["ReadShareGroupStateResponse"], api_key=84, versions=(0, 0), flexible_from=0):
    group_id: String = ""
    topics: list[ReadStateData] = field()


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = field()


class ReadStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field()


class ReadShareGroupStateResponse(Struct, api_key=84, versions=(0, 0), flexible_from=0):
    results: list[ReadStateResult] = field()
