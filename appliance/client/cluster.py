"""What a client knows of the cluster: its brokers, topics, partitions and who leads them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from appliance.base.errors import ErrorCode, KafkaError, UserError
from appliance.base.ids import ZERO_UUID, TopicPartition
from appliance.client.connection import error_of
from appliance.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where clients reach a broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition; `leader` is -1 while nobody leads it, `leader_epoch` -1 if the broker is too old to tell."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; with an `error` nothing but the name that was asked for is true."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionMetadata]
    is_internal: bool
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """An answer to Metadata."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, BrokerEndpoint]
    topics: dict[str, TopicMetadata]

    def leader_of(self, topic_partition: TopicPartition) -> int:
        """The broker that leads a partition, -1 if it is not known."""
        topic = self.topics.get(topic_partition.topic)
        partition = topic.partitions.get(topic_partition.partition) if topic is not None else None
        if partition is None or partition.leader not in self.brokers:
            return NO_LEADER
        return partition.leader

    def why_no_leader(self, topic_partition: TopicPartition) -> KafkaError:
        """The error of a partition without a known leader."""
        topic = self.topics.get(topic_partition.topic)
        if topic is not None and topic.error != ErrorCode.NONE:
            return KafkaError(topic.error, f"topic {topic_partition.topic}")
        if topic is None or topic_partition.partition not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(topic_partition))

    def topic_id(self, topic: str) -> uuid.UUID:
        """The topic's id, the zero UUID if it is not known."""
        known = self.topics.get(topic)
        return known.topic_id if known is not None else ZERO_UUID


def cluster_of(response: MetadataResponse) -> ClusterMetadata:
    """Read a Metadata response."""
    return ClusterMetadata(
        response.cluster_id,
        response.controller_id,
        {b.node_id: BrokerEndpoint(b.node_id, b.host, b.port, b.rack) for b in response.brokers},
        {topic.name: _topic_of(topic) for topic in response.topics if topic.name is not None},
    )


def _topic_of(topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {p.partition_index: _partition_of(p) for p in topic.partitions}
    return TopicMetadata(topic.name or "", topic.topic_id, partitions, topic.is_internal, error_of(topic.error_code))


def _partition_of(partition: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        error_of(partition.error_code),
    )


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Read `host:port,host:port`; an IPv6 address stands in brackets.

    Raises:
        UserError: that is not such a list.
    """
    servers = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(f"bootstrap servers are host:port,host:port; {part!r} is not")
        servers.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not servers:
        raise UserError("bootstrap servers are host:port,host:port; none was given")
    return servers
