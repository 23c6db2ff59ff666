"""Metadata: brokers, topics, partitions and who leads them.

In v0 an empty list of topics means all of them; from v1 null means all and an empty list none.

v1 racks, controller · v2 cluster id · v4 a client may forbid the creation of missing topics · v5 offline replicas · v7
leader epochs (KIP-320) · v8 authorized operations (KIP-430) · v9 flexible · v10 topic ids in answers (KIP-516) · v11 no
authorized operations of the cluster: DescribeCluster has them (KIP-700) · v12 topic ids in requests · v13 an error for
the whole answer
"""

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
