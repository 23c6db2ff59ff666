"""The records of consumer groups (KIP-848) in `__consumer_offsets`; see `group_records` for how keys and values begin.

Types of keys: 3 ConsumerGroupMetadata, 4 PartitionMetadata (until Kafka 4.0), 5 MemberMetadata, 6
TargetAssignmentMetadata, 7 TargetAssignmentMember, 8 CurrentMemberAssignment, 16 RegularExpression.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Struct, field
from appliance.wire.types import Bytes, Int8, Int32, Int64, String, Uuid


class GroupKey(Struct, versions=(0, 0)):
    group_id: String = ""


class MemberKey(Struct, versions=(0, 0)):
    group_id: String = ""
    member_id: String = ""


class RegularExpressionKey(Struct, versions=(0, 0)):
    group_id: String = ""
    regular_expression: String = ""


class ConsumerGroupMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = field(tag=0, default=0)


class ClassicProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = 0
    supported_protocols: list[ClassicProtocol] = field()


class ConsumerGroupMemberMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = field()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default=None)


class TargetAssignmentMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Int64 = field(tag=0, default=0)


class TopicPartition(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class TargetAssignmentMemberValue(Struct, versions=(0, 0), flexible_from=0):
    topic_partitions: list[TopicPartition] = field()


class TopicPartitions(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(tag=0, default=None)


class CurrentMemberAssignmentValue(Struct, versions=(0, 0), flexible_from=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()


class RegularExpressionValue(Struct, versions=(0, 0), flexible_from=0):
    topics: list[String] = field()
    version: Int64 = 0
    timestamp: Int64 = 0
