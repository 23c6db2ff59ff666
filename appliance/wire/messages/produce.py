"""Produce: append record batches to partitions.

v0-2 message sets of magic 0 and 1 · v1 throttle time · v2 the append time · v3 transactional id and record batches of
magic 2 · v5 log start offset · v7 zstd (KIP-110) · v8 errors for single records (KIP-467) · v9 flexible · v10 the
current leader comes with the error (KIP-951) · v11 TRANSACTION_ABORTABLE (KIP-890) · v12 partitions join the
transaction implicitly (KIP-890) · v13 topic ids in place of names (KIP-516)

Apache Kafka 4 names v0 to v2, too, which it does not serve: librdkafka stops compressing without (KAFKA-18659).
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, Records, String, Uuid


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    name: String = field(until=12, ignorable=True)
    topic_id: Uuid = field(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = field()


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions=(0, 13), flexible_from=9):
    transactional_id: String | None = field(since=3, default=None)
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = field(since=2, default=-1, ignorable=True)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(since=8, ignorable=True)
    error_message: String | None = field(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(since=10, tag=0)


class TopicProduceResponse(Struct):
    name: String = field(until=12, ignorable=True)
    topic_id: Uuid = field(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class ProduceResponse(Struct, api_key=0, versions=(0, 13), flexible_from=9):
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(since=10, tag=0)
