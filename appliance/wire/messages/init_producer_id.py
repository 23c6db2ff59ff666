"""InitProducerId: an id and epoch for an idempotent or transactional producer (KIP-98).

v2 flexible · v3 a producer may go on with its id after an error (KIP-360) · v4 PRODUCER_FENCED (KIP-588) · v5
TRANSACTION_ABORTABLE (KIP-890) · v6 two-phase commit (KIP-939), not stable yet: do not offer it
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String


class InitProducerIdRequest(
    Request["InitProducerIdResponse"], api_key=22, versions=(0, 6), flexible_from=2, latest_version_unstable=True
):
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Int64 = field(since=3, default=-1)
    producer_epoch: Int16 = field(since=3, default=-1)
    enable2_pc: Bool = field(since=6)
    keep_prepared_txn: Bool = field(since=6)


class InitProducerIdResponse(Struct, api_key=22, versions=(0, 6), flexible_from=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Int64 = field(since=6, default=-1)
    ongoing_txn_producer_epoch: Int16 = field(since=6, default=-1)
