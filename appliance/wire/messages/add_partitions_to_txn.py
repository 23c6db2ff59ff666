"""AddPartitionsToTxn: partitions join a transaction (KIP-98).

Clients use up to v3, brokers among themselves v4 and later.

v2 PRODUCER_FENCED (KIP-588) · v3 flexible · v4 many transactions at once, or only verify them (KIP-890) · v5
TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String


class AddPartitionsToTxnTopic(Struct):
    name: String = ""
    partitions: list[Int32] = field()


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = field()


class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"], api_key=24, versions=(0, 5), flexible_from=3):
    transactions: list[AddPartitionsToTxnTransaction] = field(since=4)
    v3_and_below_transactional_id: String = field(until=3)
    v3_and_below_producer_id: Int64 = field(until=3)
    v3_and_below_producer_epoch: Int16 = field(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field()


class AddPartitionsToTxnResponse(Struct, api_key=24, versions=(0, 5), flexible_from=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(until=3)
