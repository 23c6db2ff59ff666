"""CreatePartitions: grow topics (KIP-195).

v2 flexible · v3 THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = field()


class CreatePartitionsTopic(Struct):
    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], api_key=37, versions=(0, 3), flexible_from=2):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Struct, api_key=37, versions=(0, 3), flexible_from=2):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field()
