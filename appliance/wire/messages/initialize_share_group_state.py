"""InitializeShareGroupState: begin the state of partitions of a share group (KIP-932); between brokers."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String, Uuid


class PartitionData(Struct):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class InitializeShareGroupStateRequest(
    Request["InitializeShareGroupStateResponse"], api_key=83, versions=(0, 0), flexible_from=0
):
    group_id: String = ""
    topics: list[InitializeStateData] = field()


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class InitializeStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field()


class InitializeShareGroupStateResponse(Struct, api_key=83, versions=(0, 0), flexible_from=0):
    results: list[InitializeStateResult] = field()
