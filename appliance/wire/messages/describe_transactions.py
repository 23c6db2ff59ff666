"""DescribeTransactions: what a coordinator knows of some transactional ids (KIP-664)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class DescribeTransactionsRequest(
    Request["DescribeTransactionsResponse"], api_key=65, versions=(0, 0), flexible_from=0
):
    transactional_ids: list[String] = field()


class TopicData(Struct):
    topic: String = ""
    partitions: list[Int32] = field()


class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = field()


class DescribeTransactionsResponse(Struct, api_key=65, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = field()
