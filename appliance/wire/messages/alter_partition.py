"""AlterPartition: a leader asks the controller for another ISR (KIP-497).

v2 topic ids in place of names (KIP-841) · v3 a broker epoch for each member of the ISR (KIP-903)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, Uuid


class BrokerState(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: list[Int32] = field(until=2)
    new_isr_with_epochs: list[BrokerState] = field(since=3)
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class TopicData(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionData] = field()


class AlterPartitionRequest(Request["AlterPartitionResponse"], api_key=56, versions=(2, 3), flexible_from=0):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[TopicData] = field()


class PartitionDataResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = field()
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class TopicDataResponse(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[PartitionDataResponse] = field()


class AlterPartitionResponse(Struct, api_key=56, versions=(2, 3), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicDataResponse] = field()
