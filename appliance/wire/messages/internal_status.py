"""Between `appliance status` and brokers, our own: BrokerStatus.

Kafka has no API for what keeps a partition's records from the object store, or why a broker does not serve it.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Request, Struct, field
from appliance.wire.types import Bool, Int16, Int32, Int64, String, Uuid

BROKER_STATUS = 20010


class BrokerStatusRequest(Request["BrokerStatusResponse"], api_key=BROKER_STATUS, versions=(0, 0), flexible_from=0):
    """How a broker is, and how far its partitions are tiered."""

    only_behind: Bool = False
    """Leave out partitions of which nothing waits to be uploaded and that have no reason to tell."""


class BrokerStatusTiering(Struct):
    """A partition that the broker leads; fields as in `appliance.tiering.manager.PartitionTieringStatus`."""

    topic: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0
    state: String = ""
    leader_epoch: Int32 = -1
    start_offset: Int64 = 0
    tiered_end: Int64 = 0
    waiting_segments: Int32 = 0
    waiting_bytes: Int64 = 0
    reason: String = ""


class BrokerStatusDirectory(Struct):
    """A data directory of the broker."""

    path: String = ""
    directory_id: Uuid = ZERO_UUID
    """Zero where it could never be read."""
    state: String = ""
    """`online`, `full` or `offline`."""
    reason: String = ""
    """Why it is not online."""
    total_bytes: Int64 = -1
    free_bytes: Int64 = -1
    logs: Int32 = 0


class BrokerStatusOffline(Struct):
    """A partition of the broker that it does not serve."""

    topic: String = ""
    partition: Int32 = 0
    reason: String = ""


class BrokerStatusDamage(Struct):
    """Offsets that cannot be read from a broker's disk; readers get CORRUPT_MESSAGE there."""

    topic: String = ""
    partition: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    """Exclusive."""
    reason: String = ""


class BrokerStatusUncleanable(Struct):
    """A log that compaction leaves alone until the next start."""

    topic: String = ""
    partition: Int32 = 0
    reason: String = ""


class BrokerStatusResponse(Struct, api_key=BROKER_STATUS, versions=(0, 0), flexible_from=0):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_id: Int32 = -1
    broker_epoch: Int64 = -1
    led_partitions: Int32 = 0
    tiering: list[BrokerStatusTiering] = field()
    """At most `appliance.server.handlers.status.ROWS_MAX`, by topic and partition."""
    damage: list[BrokerStatusDamage] = field()
    """As far as it has been noticed; as many at most."""
    directories: list[BrokerStatusDirectory] = field()
    offline: list[BrokerStatusOffline] = field()
    """As many at most, by topic and partition."""
    offline_partitions: Int32 = 0
    uncleanable: list[BrokerStatusUncleanable] = field()
    """As many at most."""
    runtime_problem: String = ""
    """What is wrong with Ray, which would start this broker again; empty while nothing is."""
