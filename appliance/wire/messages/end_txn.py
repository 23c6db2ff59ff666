"""EndTxn: commit or abort a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE (KIP-890) · v5 each end gives the producer a new
epoch, which it must use (KIP-890)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions=(0, 5), flexible_from=3):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Struct, api_key=26, versions=(0, 5), flexible_from=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = field(since=5, default=-1, ignorable=True)
    producer_epoch: Int16 = field(since=5, default=-1, ignorable=True)
