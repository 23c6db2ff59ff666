"""Between brokers and controllers, our own: MetadataFetch, ControllerStatus, RegisterBroker, BrokerLease,
ReplicasOffline and ReplicaLogEnds.

Kafka's BrokerRegistration and BrokerHeartbeat have no room for what the leases need (controller epoch, firm or soft,
state of the log), and its brokers read the metadata quorum by Fetch; hence APIs of our own, with keys above Kafka's.
Every answer carries the controller epoch: whoever has seen a higher one ignores it.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Bytes, Int8, Int16, Int32, Int64, String, UInt16, Uuid

METADATA_FETCH = 20001
CONTROLLER_STATUS = 20002
REGISTER_BROKER = 20003
BROKER_LEASE = 20004
REPLICAS_OFFLINE = 20005
REPLICA_LOG_ENDS = 20006


class MetadataFetchRequest(Request["MetadataFetchResponse"], api_key=METADATA_FETCH, versions=(0, 0), flexible_from=0):
    """Long poll for commits after `position`; -1 from the beginning."""

    broker_id: Int32 = -1
    position: Int64 = -1
    max_wait_ms: Int32 = 0
    max_bytes: Int32 = 0


class MetadataFetchResponse(Struct, api_key=METADATA_FETCH, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    controller_epoch: Int32 = -1
    position: Int64 = -1
    """Number of the newest commit."""
    snapshot: Bytes | None = None
    """A snapshot object, when the commits after the requested position are not at hand any more."""
    commits: list[Bytes] = field()
    """Commit objects that follow the requested position, or the snapshot, without a gap."""


class ControllerStatusRequest(
    Request["ControllerStatusResponse"], api_key=CONTROLLER_STATUS, versions=(0, 0), flexible_from=0
):
    """How the controller is. Any controller answers, active or not."""


class ControllerStatusBroker(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    incarnation_id: Uuid = ZERO_UUID
    host: String = ""
    port: UInt16 = 0
    rack: String | None = None
    node: String = ""
    fenced: Bool = True
    shutting_down: Bool = False
    last_heartbeat_age_ms: Int64 = -1
    """-1: none since this controller took over."""
    leaders: Int32 = 0
    """Partitions that it leads."""


class ControllerStatusResponse(Struct, api_key=CONTROLLER_STATUS, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    cluster_id: String = ""
    controller_id: Int32 = -1
    controller_epoch: Int32 = -1
    active: Bool = False
    position: Int64 = -1
    snapshot: Int64 = -1
    """Number of the newest snapshot in the store; -1 for none."""
    store_url: String = ""
    store_state: String = ""
    """`ok`, or why the object store gives no answer."""
    waiting_operations: Int32 = 0
    topics: Int32 = 0
    partitions: Int32 = 0
    offline_partitions: Int32 = 0
    brokers: list[ControllerStatusBroker] = field()
    under_replicated_partitions: Int32 = 0
    under_min_isr_partitions: Int32 = 0
    reassigning_partitions: Int32 = 0
    data_lost_partitions: Int32 = 0
    """Their only replica came back empty: an operator elects it uncleanly, or restores it."""
    preferred_away_partitions: Int32 = 0
    """Led by another than their first replica."""
    unclean_elections: Int64 = 0
    """Since this controller took over."""
    deleted_topics: Int32 = 0
    """Deleted topics whose objects in the tier are being removed."""
    deleted_objects: Int64 = 0
    """Objects of deleted topics removed since this controller took over."""
    deleting: String = ""
    """What the removal waits for, or why it does not go on."""


class RegisterBrokerListener(Struct):
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


class RegisterBrokerRequest(
    Request["RegisterBrokerResponse"], api_key=REGISTER_BROKER, versions=(0, 0), flexible_from=0
):
    """A broker that starts makes itself known and gets its epoch; BrokerRegistration in our words."""

    broker_id: Int32 = 0
    cluster_id: String | None = None
    """Null at a broker's first start."""
    incarnation_id: Uuid = ZERO_UUID
    listeners: list[RegisterBrokerListener] = field()
    rack: String | None = None
    node: String = ""
    directory_ids: list[Uuid] = field()
    log_state: Int8 = 0
    """`appliance.controller.records.LogState`."""
    previous_broker_epoch: Int64 = -1
    """The epoch noted in the data directory whose lock this broker holds: proof that its owner has ended."""


class RegisterBrokerResponse(Struct, api_key=REGISTER_BROKER, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    controller_epoch: Int32 = -1
    cluster_id: String = ""
    broker_epoch: Int64 = -1


class BrokerLeaseRequest(Request["BrokerLeaseResponse"], api_key=BROKER_LEASE, versions=(0, 0), flexible_from=0):
    """A broker renews its lease, asks to be unfenced or to shut down; BrokerHeartbeat in our words."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    position: Int64 = -1
    """Number of the last commit that the broker has applied."""
    controller_epoch: Int32 = -1
    """The highest that the broker has seen; from then on it takes no lease from a lower one."""
    want_fence: Bool = False
    want_shut_down: Bool = False


class BrokerLeaseResponse(Struct, api_key=BROKER_LEASE, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    controller_epoch: Int32 = -1
    is_fenced: Bool = True
    is_firm: Bool = False
    """The controller had proof from the store within its time that nobody has replaced it."""
    lease_ms: Int32 = 0
    """How long the lease lasts, from the moment the request was sent; 0 gives none."""
    should_shut_down: Bool = False


class ReplicasOfflineTopic(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = field()


class ReplicasOfflineRequest(
    Request["ReplicasOfflineResponse"], api_key=REPLICAS_OFFLINE, versions=(0, 0), flexible_from=0
):
    """Replicas of a broker that it cannot serve, because their disk has failed or their logs cannot be found."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: list[ReplicasOfflineTopic] = field()


class ReplicasOfflineResponse(Struct, api_key=REPLICAS_OFFLINE, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


class ReplicaLogEndsPartition(Struct):
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    """The partition's, since nobody leads it: a broker that has not heard of it yet may still be appending."""


class ReplicaLogEndsTopic(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[ReplicaLogEndsPartition] = field()


class ReplicaLogEndsRequest(
    Request["ReplicaLogEndsResponse"], api_key=REPLICA_LOG_ENDS, versions=(0, 0), flexible_from=0
):
    """How long the logs of a broker's replicas are, asked by the controller before an unclean election."""

    topics: list[ReplicaLogEndsTopic] = field()


class ReplicaLogEndsRow(Struct):
    partition: Int32 = 0
    error_code: Int16 = 0
    """KAFKA_STORAGE_ERROR: this replica cannot be used. Anything else may be over soon."""
    last_epoch: Int32 = -1
    log_end_offset: Int64 = -1


class ReplicaLogEndsTopicRows(Struct):
    topic_id: Uuid = ZERO_UUID
    partitions: list[ReplicaLogEndsRow] = field()


class ReplicaLogEndsResponse(Struct, api_key=REPLICA_LOG_ENDS, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_id: Int32 = -1
    broker_epoch: Int64 = -1
    """Whose logs these are: another process of the broker may have lost what this one had."""
    topics: list[ReplicaLogEndsTopicRows] = field()
