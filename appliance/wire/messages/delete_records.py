"""DeleteRecords: raise the log start offset (KIP-107).

v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], api_key=21, versions=(0, 2), flexible_from=2):
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(Struct, api_key=21, versions=(0, 2), flexible_from=2):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = field()
