"""ShareGroupDescribe: state, members and assignments of share groups (KIP-932)."""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String, Uuid


class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"], api_key=77, versions=(1, 1), flexible_from=0):
    group_ids: list[String] = field()
    include_authorized_operations: Bool = False


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: list[Int32] = field()


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = field()


class Member(Struct):
    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = field()
    assignment: Assignment = field()


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = field()
    authorized_operations: Int32 = -2147483648


class ShareGroupDescribeResponse(Struct, api_key=77, versions=(1, 1), flexible_from=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()
