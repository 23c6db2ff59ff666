"""ListPartitionReassignments (KIP-455)."""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String


class ListPartitionReassignmentsTopics(Struct):
    name: String = ""
    partition_indexes: list[Int32] = field()


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], api_key=46, versions=(0, 0), flexible_from=0
):
    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None
    """Null for all."""


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    removing_replicas: list[Int32] = field()


class OngoingTopicReassignment(Struct):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(Struct, api_key=46, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default="")
    topics: list[OngoingTopicReassignment] = field()
