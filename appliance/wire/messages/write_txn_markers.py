"""WriteTxnMarkers: a transaction coordinator has transactions ended in the partitions that this broker leads (KIP-98).

v1 flexible · v2 the version of transactions that the producer follows (KIP-1228)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, Int64, String


class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = field()


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = field(since=2, default=0, ignorable=True)


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], api_key=27, versions=(1, 2), flexible_from=1):
    markers: list[WritableTxnMarker] = field()


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field()


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field()


class WriteTxnMarkersResponse(Struct, api_key=27, versions=(1, 2), flexible_from=1):
    markers: list[WritableTxnMarkerResult] = field()
