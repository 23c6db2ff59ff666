"""OffsetDelete: forget a group's offsets of topics that it no longer reads (KIP-496). Never flexible."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions=(0, 0)):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(Struct, api_key=47, versions=(0, 0)):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field()
