"""ConsumerGroupDescribe: state, members and assignments of groups of the new protocol (KIP-848).

v1 type of a member: classic or of the new protocol (KIP-1099)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeRequest(
    Request["ConsumerGroupDescribeResponse"], api_key=69, versions=(0, 1), flexible_from=0
):
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
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = field()
    subscribed_topic_regex: String | None = None
    assignment: Assignment = field()
    target_assignment: Assignment = field()
    member_type: Int8 = field(since=1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = field()
    authorized_operations: Int32 = -(2**31)


class ConsumerGroupDescribeResponse(Struct, api_key=69, versions=(0, 1), flexible_from=0):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = field()
