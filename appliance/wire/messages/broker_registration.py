"""BrokerRegistration: a broker that starts makes itself known to the controller and gets its epoch (KIP-631).

v1 ZooKeeper migration, unused · v2 log directories (KIP-858) · v3 previous broker epoch, to tell a clean shutdown
(KIP-966) · v4 a feature's lowest version may be 0 (KAFKA-17011)
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String, UInt16, Uuid


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class Feature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class BrokerRegistrationRequest(Request["BrokerRegistrationResponse"], api_key=62, versions=(0, 4), flexible_from=0):
    broker_id: Int32 = 0
    cluster_id: String = ""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[Listener] = field()
    features: list[Feature] = field()
    rack: String | None = ""
    is_migrating_zk_broker: Bool = field(since=1)
    log_dirs: list[Uuid] = field(since=2, ignorable=True)
    previous_broker_epoch: Int64 = field(since=3, default=-1, ignorable=True)


class BrokerRegistrationResponse(Struct, api_key=62, versions=(0, 4), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
