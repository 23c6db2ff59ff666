"""Where a partition's leader is, for answers that spare the client a Metadata round trip (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from appliance.server.context import Broker


class LeaderHint(NamedTuple):
    """The leader that the metadata names, and how clients reach it."""

    leader_id: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def leader_hint(broker: Broker, listener: str, topic: str, partition: int) -> LeaderHint | None:
    """The present leader; None while there is none, or it is this broker itself.

    `listener` is the one on which the client came: it is told of the leader's of that name.
    """
    state = broker.image.partition(topic, partition)
    if state is None or state.leader < 0 or state.leader == broker.broker_id:
        return None
    leader = broker.image.brokers.get(state.leader)
    endpoint = leader.endpoint(listener) if leader is not None else None
    if leader is None or endpoint is None:
        return None
    return LeaderHint(state.leader, state.leader_epoch, endpoint.host, endpoint.port, leader.rack)
