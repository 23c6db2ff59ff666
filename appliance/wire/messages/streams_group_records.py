"""The records of groups of Kafka Streams (KIP-1071) in `__consumer_offsets`; `group_records` says how they begin.

Types of keys: 17 StreamsGroupMetadata, 19 MemberMetadata, 20 TargetAssignmentMetadata, 21 TargetAssignmentMember, 22
CurrentMemberAssignment, 23 Topology. Keys are those of consumer groups: a group id, and for 19, 21 and 22 a member id.
"""

from __future__ import annotations

from appliance.wire.messages.streams_group_heartbeat import Endpoint, KeyValue, Subtopology
from appliance.wire.messages.streams_group_heartbeat import TaskIds as TargetTaskIds
from appliance.wire.schema import Struct, field
from appliance.wire.types import Int8, Int32, Int64, String


class StreamsGroupMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    epoch: Int32 = 0
    metadata_hash: Int64 = 0
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = field(tag=1, default=None)


class StreamsGroupMemberMetadataValue(Struct, versions=(0, 0), flexible_from=0):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32 = 0
    process_id: String = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = field()


class StreamsGroupTopologyValue(Struct, versions=(0, 0), flexible_from=0):
    epoch: Int32 = 0
    subtopologies: list[Subtopology] = field()


class StreamsGroupTargetAssignmentMemberValue(Struct, versions=(0, 0), flexible_from=0):
    active_tasks: list[TargetTaskIds] = field()
    standby_tasks: list[TargetTaskIds] = field()
    warmup_tasks: list[TargetTaskIds] = field()


class TaskIds(Struct):
    subtopology_id: String = ""
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(tag=0, default=None)


class StreamsGroupCurrentMemberAssignmentValue(Struct, versions=(0, 0), flexible_from=0):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()
    active_tasks_pending_revocation: list[TaskIds] = field()
    standby_tasks_pending_revocation: list[TaskIds] = field()
    warmup_tasks_pending_revocation: list[TaskIds] = field()
