"""Topics of our own, created when they are first needed."""

from __future__ import annotations

from collections.abc import Callable

from appliance.base.config import BrokerConfig
from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.topic_waits import when_topics_are_there
from appliance.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_STATE = "__share_group_state"


class InternalTopics:
    """Asks the controller once, however many wait."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[str, list[Callable[[ErrorCode], None]]] = {}

    def create(self, name: str, done: Callable[[ErrorCode], None]) -> None:
        """Create the topic unless it is there; `done` gets NONE once this broker's image has it."""
        if name in self._broker.image.topics:
            done(ErrorCode.NONE)
            return
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append(done)
            return
        self._waiting[name] = [done]
        topic = internal_topic(name, self._broker.config, len(self._broker.image.brokers))
        request = CreateTopicsRequest(topics=[topic])
        self._broker.controller.call(request, lambda response: self._created(name, response))

    def _created(self, name: str, response: object) -> None:
        if not isinstance(response, CreateTopicsResponse):
            self._finish(name, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        error = ErrorCode(response.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._finish(name, error)
            return
        when_topics_are_there(self._broker, [name], lambda: self._finish(name, ErrorCode.NONE))

    def _finish(self, name: str, error: ErrorCode) -> None:
        for done in self._waiting.pop(name, []):
            done(error)


INTERNAL_REPLICAS = 3
BACKED_UP = (CONSUMER_OFFSETS, SHARE_STATE)
"""Not tiered, but kept in the object store as a backup of each partition."""


def internal_topic(name: str, config: BrokerConfig, brokers: int) -> CreatableTopic:
    """Partitions and configs of a topic of our own, as Kafka gives them. They are never tiered.

    `brokers`: how many are registered; there are never more replicas than that, so that small clusters work, too.
    """
    configs = {"cleanup.policy": "compact", "compression.type": "producer"}
    partitions, replicas = -1, INTERNAL_REPLICAS
    if name == CONSUMER_OFFSETS:
        partitions = config.get("offsets.topic.num.partitions")
        replicas = config.get("offsets.topic.replication.factor")
        configs["segment.bytes"] = str(config.get("offsets.topic.segment.bytes"))
    elif name == TRANSACTION_STATE:
        partitions = config.get("transaction.state.log.num.partitions")
        replicas = config.get("transaction.state.log.replication.factor")
        configs["segment.bytes"] = str(config.get("transaction.state.log.segment.bytes"))
        configs["min.insync.replicas"] = str(min(config.get("transaction.state.log.min.isr"), replicas, brokers))
        configs["compression.type"] = "uncompressed"
    elif name == SHARE_STATE:
        partitions = config.get("share.coordinator.state.topic.num.partitions")
        replicas = config.get("share.coordinator.state.topic.replication.factor")
        # Updates stand on earlier ones: nothing may be compacted, and what is superseded is cut by the coordinator.
        configs |= {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        configs["remote.storage.enable"] = "false"
        configs["segment.bytes"] = str(config.get("share.coordinator.state.topic.segment.bytes"))
        wanted = config.get("share.coordinator.state.topic.min.isr")
        configs["min.insync.replicas"] = str(min(wanted, replicas, brokers))
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=max(1, min(replicas, brokers)),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
