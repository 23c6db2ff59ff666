"""The records of `__transaction_state`.

A key is an int16 record type (0) and the key message. A value is an int16 version and the value message in that
version; no value (a tombstone) forgets the transactional id.

TransactionLogValue: v1 flexible, with what a change of the producer id needs (KIP-890) in tagged fields
"""

from __future__ import annotations

from appliance.wire.schema import Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Struct, versions=(0, 0)):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = field()


class TransactionLogValue(Struct, versions=(0, 1), flexible_from=1):
    producer_id: Int64 = 0
    previous_producer_id: Int64 = field(since=1, tag=0, default=-1)
    next_producer_id: Int64 = field(since=1, tag=1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = field(since=1, tag=3, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = field()
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = field(since=1, tag=2, default=0)
