"""ConsumerGroupHeartbeat: join, stay in and leave a group of the new protocol (KIP-848).

Member epoch 0 joins, -1 leaves, -2 leaves for a while (static member). A null field has not changed.

v1 subscription by regular expression; the client makes its own member id (KIP-1082)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String, Uuid


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class ConsumerGroupHeartbeatRequest(
    Request["ConsumerGroupHeartbeatResponse"], api_key=68, versions=(0, 1), flexible_from=0
):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = field(since=1, default=None)
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class TopicPartitionsResponse(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitionsResponse] = field()


class ConsumerGroupHeartbeatResponse(Struct, api_key=68, versions=(0, 1), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
