"""The metadata image: what the cluster looks like after a given commit.

An image is never changed once it is built: a new one shares with the old one all that stayed the same, so that it can
be handed from thread to thread and compared by identity. `appliance.controller.delta` makes the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from appliance.authorizer.bindings import AclBinding
from appliance.controller.records import NO_LEADER, Listener, LogState, PartitionState
from appliance.security.scram import ScramCredential

__all__ = ["NO_LEADER", "BrokerState", "MetadataImage", "PartitionState", "TopicState"]

_EMPTY: Mapping[str, str] = MappingProxyType({})

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name or None for the default) in the order of the types' names."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker."""

    broker_id: int
    broker_epoch: int
    """Position of its registration in the metadata log."""
    incarnation_id: uuid.UUID
    listeners: tuple[Listener, ...]
    rack: str | None
    node: str
    """The Ray node or host it lives on; empty when unknown."""
    directory_ids: tuple[uuid.UUID, ...]
    log_state: LogState
    fenced: bool
    dead: bool = False
    """Fenced, and its process is known to be gone."""
    shutting_down: bool = False
    """It stops: it leads only what nobody else can, until it is fenced at its own wish."""

    def endpoint(self, listener: str) -> Listener | None:
        """Where the clients of a listener find this broker; None where it has no such listener."""
        for one in self.listeners:
            if one.name == listener:
                return one
        return None

    @property
    def host(self) -> str:
        """Host of the first listener, which brokers use among themselves."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        """Its port."""
        return self.listeners[0].port


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, its own configuration entries and its partitions."""

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """Only what was set on the topic; see `appliance.base.config.topic_config`."""
    partitions: tuple[PartitionState, ...] = ()
    """Partition p at index p."""


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All committed metadata up to one commit."""

    position: int = -1
    """Number of the last commit in it; -1 before the first."""
    controller_epoch: int = 0
    controller_id: int = -1
    controller_host: str = ""
    controller_port: int = -1
    cluster_id: str = ""
    brokers: Mapping[int, BrokerState] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    topics_by_id: Mapping[uuid.UUID, TopicState] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configuration by broker id as text; the empty text holds the cluster's defaults."""
    resource_configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    """Entries of groups and client metrics, by type of resource and name."""
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    scram_credentials: Mapping[tuple[str, int], ScramCredential] = field(default_factory=dict)
    """By user and mechanism."""
    acls: Mapping[AclBinding, None] = field(default_factory=dict)
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict)
    deleted_topics: Mapping[uuid.UUID, str] = field(default_factory=dict)
    """Ids and names of deleted topics whose objects in the tier are still to be removed."""

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """One partition by the topic's name, or None."""
        state = self.topics.get(topic)
        if state is None or not 0 <= partition < len(state.partitions):
            return None
        return state.partitions[partition]

    def partition_by_id(self, topic_id: uuid.UUID, partition: int) -> PartitionState | None:
        """One partition by the topic's id, or None."""
        state = self.topics_by_id.get(topic_id)
        if state is None or not 0 <= partition < len(state.partitions):
            return None
        return state.partitions[partition]

    def live_brokers(self) -> list[BrokerState]:
        """Brokers that are not fenced, by id."""
        return [broker for _, broker in sorted(self.brokers.items()) if not broker.fenced]
