"""Reading from the replica in the reader's own rack (KIP-392), where `replica.selector.class` says so.

The leader names the replica in its answer, without records; the replica serves what it knows to be committed.
"""

from __future__ import annotations

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.server.context import Broker, Partition

RACK_AWARE = "RackAwareReplicaSelector"
"""With or without Kafka's package name; any other selector lets readers read from the leader."""


def selects_by_rack(config: BrokerConfig) -> bool:
    """Whether readers may be sent to a follower."""
    selector = config.get("replica.selector.class")
    return bool(selector) and selector.rpartition(".")[2] == RACK_AWARE


def refusal_for_reader(hosted: Partition) -> ErrorCode:
    """NONE where this broker leads the partition, or follows and may be read from."""
    refusal = hosted.refusal()
    if refusal is ErrorCode.NOT_LEADER_OR_FOLLOWER and hosted.may_be_read:
        return ErrorCode.NONE
    return refusal


def preferred_replica(broker: Broker, hosted: Partition, rack: str, fetch_offset: int) -> int:
    """The follower in the reader's rack that has the offset and most behind it; -1: read here."""
    leader, brokers = hosted.leader, broker.image.brokers
    own = brokers.get(broker.broker_id)
    if leader is None or (own is not None and own.rack == rack):
        return -1
    chosen, furthest = -1, -1
    for follower in leader.followers.values():
        replica = brokers.get(follower.replica_id)
        if (
            replica is not None
            and not replica.fenced
            and replica.rack == rack
            and follower.log_start_offset <= fetch_offset <= follower.end_offset
            and follower.end_offset > furthest
        ):
            chosen, furthest = follower.replica_id, follower.end_offset
    return chosen
