"""AllocateProducerIds: a broker gets a block of producer ids from the controller (KIP-730)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct
from appliance.wire.types import Int16, Int32, Int64


class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"], api_key=67, versions=(0, 0), flexible_from=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Struct, api_key=67, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
