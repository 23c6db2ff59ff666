"""DescribeProducers: the producers that a partition remembers and their open transactions (KIP-664)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class TopicRequest(Struct):
    name: String = ""
    partition_indexes: list[Int32] = field()


class DescribeProducersRequest(Request["DescribeProducersResponse"], api_key=61, versions=(0, 0), flexible_from=0):
    topics: list[TopicRequest] = field()


class ProducerState(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = field()


class TopicResponse(Struct):
    name: String = ""
    partitions: list[PartitionResponse] = field()


class DescribeProducersResponse(Struct, api_key=61, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = field()
