"""Metadata answers from the image, put together from bytes that are kept for each topic.

A topic that has not changed is encoded once for each version that clients ask in, however many they are: an answer
about thousands of partitions costs a join.
"""

from __future__ import annotations

import uuid

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.controller.image import BrokerState, MetadataImage, PartitionState, TopicState
from appliance.controller.records import Listener
from appliance.wire.codec import encode, encode_response
from appliance.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from appliance.wire.varint import encode_unsigned_varint

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_TOPICS_KEPT_MAX = 10_000
"""Topics whose part of an answer is kept, each version for itself; the oldest go first."""
_FLEXIBLE_FROM = 9
_SIZE_BYTES = 4


class MetadataView:
    """Builds Metadata answers. A topic's bytes are kept while its state and the brokers are the same."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, int], tuple[TopicState, bytes]] = {}
        self._live: tuple[object, frozenset[int]] = (None, frozenset())

    def topic(self, image: MetadataImage, state: TopicState, version: int) -> bytes:
        """One topic with all its partitions."""
        live = self.live_ids(image)
        key = (state.name, version)
        kept = self._topics.get(key)
        if kept is not None and kept[0] is state:
            return kept[1]
        topic = MetadataResponseTopic(
            name=state.name,
            topic_id=state.topic_id,
            is_internal=state.name in INTERNAL_TOPICS,
            partitions=[_partition(partition, live) for partition in state.partitions],
        )
        if len(self._topics) >= _TOPICS_KEPT_MAX:
            del self._topics[next(iter(self._topics))]
        encoded = _encoded(topic, version)
        self._topics[key] = (state, encoded)
        return encoded

    def live_ids(self, image: MetadataImage) -> frozenset[int]:
        """Ids of all brokers that are not fenced."""
        if self._live[0] is not image.brokers:
            self._live = (image.brokers, frozenset(broker.broker_id for broker in image.live_brokers()))
            self._topics.clear()
        return self._live[1]

    @staticmethod
    def unknown(version: int, error: ErrorCode, name: str | None = None, topic_id: uuid.UUID = ZERO_UUID) -> bytes:
        """The part of a topic that cannot be told about."""
        return _encoded(MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id), version)

    @staticmethod
    def response(
        image: MetadataImage, topics: list[bytes], version: int, correlation_id: int, listener: str = "PLAINTEXT"
    ) -> bytes:
        """The frame around the topics' parts. The controller is any live broker: clients send it nothing special.

        Brokers are named by their addresses on the listener that was asked; who has none there is not named.
        """
        around = encode_response(
            MetadataResponse(
                brokers=[
                    _broker(broker, endpoint)
                    for broker in image.live_brokers()
                    if (endpoint := broker.endpoint(listener)) is not None
                ],
                cluster_id=image.cluster_id or None,
                controller_id=some_live_broker(image),
            ),
            version,
            correlation_id,
        )
        end = len(around) - _bytes_behind_topics(version)
        count = _count(len(topics), version)
        frame = b"".join([around[: end - _bytes_of_count(version)], count, *topics, around[end:]])
        return (len(frame) - _SIZE_BYTES).to_bytes(_SIZE_BYTES, "big") + frame[_SIZE_BYTES:]


# What stands around the topics of a MetadataResponse, by version. A test compares all versions with the codec.


def _bytes_behind_topics(version: int) -> int:
    """Authorized operations of the cluster (versions 8 to 10), an error (13), a tag section (9 on)."""
    return (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= _FLEXIBLE_FROM else 0)


def _bytes_of_count(version: int) -> int:
    """Of the number of topics, where it is 0 or 1."""
    return 1 if version >= _FLEXIBLE_FROM else 4


def _count(count: int, version: int) -> bytes:
    return encode_unsigned_varint(count + 1) if version >= _FLEXIBLE_FROM else count.to_bytes(4, "big")


def _encoded(topic: MetadataResponseTopic, version: int) -> bytes:
    around, whole = encode(MetadataResponse(), version), encode(MetadataResponse(topics=[topic]), version)
    behind = _bytes_behind_topics(version)
    return whole[len(around) - behind : len(whole) - behind]


def some_live_broker(image: MetadataImage) -> int:
    """The broker that is named as the controller. Every broker forwards what is the controller's."""
    return next((broker.broker_id for broker in image.live_brokers()), -1)


def _broker(broker: BrokerState, endpoint: Listener) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)


def _partition(state: PartitionState, live: frozenset[int]) -> MetadataResponsePartition:
    has_leader = state.leader in live
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=state.partition,
        leader_id=state.leader if has_leader else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )
