"""metadata"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, String, Uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = field(since=10, ignorable=True)
    name: String | None = field(nullable_since=10)


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 13), flexible_from=9):
    topics: list[MetadataRequestTopic] | None = field(nullable_since=1)
    allow_auto_topic_creation: Bool = field(since=4, default=True)
    include_cluster_authorized_operations: Bool = field(since=8, until=10)
    include_topic_authorized_operations: Bool = field(since=8)


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = field(since=1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = field(since=7, default=-1, ignorable=True)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    offline_replicas: list[Int32] = field(since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: String | None = field(nullable_since=12)
    topic_id: Uuid = field(since=10, ignorable=True)
    is_internal: Bool = field(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = field()
    topic_authorized_operations: Int32 = field(since=8, default=-(2**31))


class MetadataResponse(Struct, api_key=3, versions=(0, 13), flexible_from=9):
    throttle_time_ms: Int32 = field(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = field()
    cluster_id: String | None = field(since=2, default=None, ignorable=True)
    controller_id: Int32 = field(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field()
    cluster_authorized_operations: Int32 = field(since=8, until=10, default=-(2**31))
    error_code: Int16 = field(since=13, ignorable=True)
