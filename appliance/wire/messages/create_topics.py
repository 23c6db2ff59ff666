"""CreateTopics.

v1 validate only, error message (KIP-4) · v4 -1 partitions or replicas stand for the broker's defaults (KIP-464) · v5
flexible, the topic's configs come back (KIP-525) · v6 THROTTLING_QUOTA_EXCEEDED (KIP-599) · v7 topic id (KIP-516)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String, Uuid


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = field()


class CreatableTopicConfig(Struct):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Struct):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = field()
    configs: list[CreatableTopicConfig] = field()


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions=(0, 7), flexible_from=5):
    topics: list[CreatableTopic] = field()
    timeout_ms: Int32 = 60000
    validate_only: Bool = field(since=1)


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Uuid = field(since=7, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = field(since=1, ignorable=True)
    topic_config_error_code: Int16 = field(since=5, tag=0, ignorable=True)
    num_partitions: Int32 = field(since=5, default=-1, ignorable=True)
    replication_factor: Int16 = field(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(since=5, ignorable=True)


class CreateTopicsResponse(Struct, api_key=19, versions=(0, 7), flexible_from=5):
    throttle_time_ms: Int32 = field(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = field()
