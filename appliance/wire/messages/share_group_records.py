"""The records of share groups (KIP-932) in `__consumer_offsets`; see `group_records` for how keys and values begin.

Types of keys: 10 MemberMetadata, 11 Metadata, 12 TargetAssignmentMetadata, 13 TargetAssignmentMember, 14
CurrentMemberAssignment, 15 StatePartitionMetadata.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Struct, field
from appliance.wire.types import Int8, Int32, Int64, String, Uuid


class ShareGroupMemberMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    rack_id: String | None = ""
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = field()


class ShareGroupMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0


class ShareGroupTargetAssignmentMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0)


class TopicPartition(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class ShareGroupTargetAssignmentMemberValue(Struct, versions=(0, 0), flexible_from=0):
    topic_partitions: list[TopicPartition] = field()


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class ShareGroupCurrentMemberAssignmentValue(Struct, versions=(0, 0), flexible_from=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = field()


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""
    partitions: list[Int32] = field()


class TopicInfo(Struct):
    topic_id: Uuid = ZERO_UUID
    topic_name: String = ""


class ShareGroupStatePartitionMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    initializing_topics: list[TopicPartitionsInfo] = field()
    initialized_topics: list[TopicPartitionsInfo] = field()
    deleting_topics: list[TopicInfo] = field()
