"""DeleteTopics.

v3 TOPIC_DELETION_DISABLED · v4 flexible · v5 error message, THROTTLING_QUOTA_EXCEEDED (KIP-599) · v6 by topic id too
(KIP-516)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Int16, Int32, String, Uuid


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions=(0, 6), flexible_from=4):
    topics: list[DeleteTopicState] = field(since=6)
    topic_names: list[String] = field(until=5, ignorable=True)
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: String | None = field(nullable_since=6)
    topic_id: Uuid = field(since=6, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = field(since=5, default=None, ignorable=True)


class DeleteTopicsResponse(Struct, api_key=20, versions=(0, 6), flexible_from=4):
    throttle_time_ms: Int32 = field(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = field()
