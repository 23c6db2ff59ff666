"""DescribeCluster: brokers, controller and authorized operations (KIP-700).

v1 controllers too (KIP-919) · v2 fenced brokers on request (KIP-1073)
"""

from __future__ import annotations

from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int8, Int16, Int32, String


class DescribeClusterRequest(Request["DescribeClusterResponse"], api_key=60, versions=(0, 2), flexible_from=0):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = field(since=1, default=1)
    include_fenced_brokers: Bool = field(since=2)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None
    is_fenced: Bool = field(since=2)


class DescribeClusterResponse(Struct, api_key=60, versions=(0, 2), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = field(since=1, default=1)
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = field()
    cluster_authorized_operations: Int32 = -(2**31)
