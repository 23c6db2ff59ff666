"""DeleteShareGroupState: end the state of partitions of a share group (KIP-932); between brokers."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String, Uuid


class PartitionData(Struct):
    partition: Int32 = 0


class DeleteStateData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class DeleteShareGroupStateRequest(
    Request["DeleteShareGroupStateResponse"], api_key=86, versions=(0, 0), flexible_from=0
):
    group_id: String = ""
    topics: list[DeleteStateData] = field()


class PartitionResult(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteStateResult(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionResult] = field()


class DeleteShareGroupStateResponse(Struct, api_key=86, versions=(0, 0), flexible_from=0):
    results: list[DeleteStateResult] = field()
