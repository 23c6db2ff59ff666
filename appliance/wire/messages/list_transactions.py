"""ListTransactions: the transactional ids of a coordinator (KIP-664).

v1 only those that run for a while (KIP-994) · v2 by a pattern of their ids (KIP-1152)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, Int64, String


class ListTransactionsRequest(Request["ListTransactionsResponse"], api_key=66, versions=(0, 2), flexible_from=0):
    state_filters: list[String] = field()
    producer_id_filters: list[Int64] = field()
    duration_filter: Int64 = field(since=1, default=-1)
    transactional_id_pattern: String | None = field(since=2, default=None)


class TransactionState(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Struct, api_key=66, versions=(0, 2), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = field()
    transaction_states: list[TransactionState] = field()
