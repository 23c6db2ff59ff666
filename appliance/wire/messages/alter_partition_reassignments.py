"""AlterPartitionReassignments: other replicas for partitions, or the end of a reassignment (KIP-455).

v1 says whether the number of replicas may change (KIP-860)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None
    """Null cancels."""


class ReassignableTopic(Struct):
    name: String = ""
    partitions: list[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], api_key=45, versions=(0, 1), flexible_from=0
):
    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Bool = field(since=1, default=True)
    topics: list[ReassignableTopic] = field()


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default="")


class ReassignableTopicResponse(Struct):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(Struct, api_key=45, versions=(0, 1), flexible_from=0):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field(since=1, default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = field(default="")
    responses: list[ReassignableTopicResponse] = field()
