"""ElectLeaders.

v1 unclean elections too, an error for the whole request (KIP-460) · v2 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int8, Int16, Int32, String


class TopicPartitions(Struct):
    topic: String = ""
    partitions: list[Int32] = field()


class ElectLeadersRequest(Request["ElectLeadersResponse"], api_key=43, versions=(0, 2), flexible_from=2):
    election_type: Int8 = field(since=1)
    """0 the preferred replica, 1 any that lives."""
    topic_partitions: list[TopicPartitions] | None = field()
    """Null for all."""
    timeout_ms: Int32 = 60_000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default="")


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: list[PartitionResult] = field()


class ElectLeadersResponse(Struct, api_key=43, versions=(0, 2), flexible_from=2):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = field(since=1)
    replica_election_results: list[ReplicaElectionResult] = field()
