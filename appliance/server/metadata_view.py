"""Metadata answers from the image, kept in parts where many clients ask the same.

A topic that has not changed is not looked at again, however many clients ask.
"""

from __future__ import annotations

import uuid

from appliance.base.errors import ErrorCode
from appliance.base.ids import ZERO_UUID
from appliance.controller.image import BrokerState, MetadataImage, PartitionState, TopicState
from appliance.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_TOPICS_KEPT_MAX = 10_000
"""Topics whose part of an answer is kept; the oldest go first."""


class MetadataView:
    """Builds parts of Metadata answers. A topic's part is kept while its state and the brokers are the same."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[TopicState, MetadataResponseTopic]] = {}
        self._brokers: tuple[object, list[MetadataResponseBroker]] | None = None
        self._live: tuple[object, frozenset[int]] = (None, frozenset())

    def brokers(self, image: MetadataImage) -> list[MetadataResponseBroker]:
        """All brokers that are not fenced."""
        if self._brokers is None or self._brokers[0] is not image.brokers:
            self._brokers = (image.brokers, [_broker(broker) for broker in image.live_brokers()])
            self._topics.clear()
        return self._brokers[1]

    def topic(self, image: MetadataImage, state: TopicState) -> MetadataResponseTopic:
        """One topic with all its partitions."""
        live = self.live_ids(image)
        kept = self._topics.get(state.name)
        if kept is not None and kept[0] is state:
            return kept[1]
        part = MetadataResponseTopic(
            name=state.name,
            topic_id=state.topic_id,
            is_internal=state.name in INTERNAL_TOPICS,
            partitions=[_partition(partition, live) for partition in state.partitions],
        )
        if len(self._topics) >= _TOPICS_KEPT_MAX:
            del self._topics[next(iter(self._topics))]
        self._topics[state.name] = (state, part)
        return part

    def live_ids(self, image: MetadataImage) -> frozenset[int]:
        """Ids of all brokers that are not fenced."""
        if self._live[0] is not image.brokers:
            self._live = (image.brokers, frozenset(broker.broker_id for broker in image.live_brokers()))
            self._topics.clear()
        return self._live[1]

    @staticmethod
    def unknown(error: ErrorCode, name: str | None = None, topic_id: uuid.UUID = ZERO_UUID) -> MetadataResponseTopic:
        """The part of a topic that cannot be told about."""
        return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id)

    def response(self, image: MetadataImage, topics: list[MetadataResponseTopic]) -> MetadataResponse:
        """The answer around the topics' parts. The controller is any live broker: clients send it nothing special."""
        return MetadataResponse(
            brokers=self.brokers(image),
            cluster_id=image.cluster_id or None,
            controller_id=some_live_broker(image),
            topics=topics,
        )


def some_live_broker(image: MetadataImage) -> int:
    """The broker that is named as the controller. Every broker forwards what is the controller's."""
    return next((broker.broker_id for broker in image.live_brokers()), -1)


def _broker(broker: BrokerState) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=broker.broker_id, host=broker.host, port=broker.port, rack=broker.rack)


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
