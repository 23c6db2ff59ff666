"""AddOffsetsToTxn: a group's offsets join a transaction (KIP-98).

v2 PRODUCER_FENCED (KIP-588) · v3 flexible · v4 TRANSACTION_ABORTABLE (KIP-890)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct
from appliance.wire.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"], api_key=25, versions=(0, 4), flexible_from=3):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Struct, api_key=25, versions=(0, 4), flexible_from=3):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
