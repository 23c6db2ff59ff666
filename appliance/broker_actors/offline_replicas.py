"""Tells the controller which of this broker's replicas are out of service, until it has acted on that (rule P12)."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from appliance.controller.offline_replicas import others_have_it
from appliance.wire.messages.internal_metadata import (
    ReplicasOfflineRequest,
    ReplicasOfflineResponse,
    ReplicasOfflineTopic,
)

if TYPE_CHECKING:
    from appliance.broker_actors.broker import Broker

_log = logging.getLogger(__name__)

LOOK_INTERVAL_MS = 500
TIMEOUT_MS = 5_000
PARTITIONS_PER_REQUEST_MAX = 5_000


class OfflineReplicas:
    """All methods are called on the loop's thread. Nothing is remembered: the image says what is still to be told."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._under_way = False

    def start(self) -> None:
        """Look now and then, as long as the broker runs."""
        self._broker.background.schedule(LOOK_INTERVAL_MS, self._fire)

    def all_told(self) -> bool:
        """Whether nothing is left to be told; else it is told at once."""
        if not self._in_sync():
            return True
        self._tell()
        return False

    def _fire(self) -> None:
        self.start()
        self._tell()

    def _tell(self) -> None:
        if self._under_way or self._broker.broker_epoch < 0:
            return
        topics: dict[uuid.UUID, ReplicasOfflineTopic] = {}
        for topic_id, partition in self._in_sync()[:PARTITIONS_PER_REQUEST_MAX]:
            topics.setdefault(topic_id, ReplicasOfflineTopic(topic_id=topic_id)).partitions.append(partition)
        if not topics:
            return
        self._under_way = True
        request = ReplicasOfflineRequest(
            broker_id=self._broker.broker_id, broker_epoch=self._broker.broker_epoch, topics=list(topics.values())
        )
        self._broker.controller.call(request, self._answered, timeout_ms=TIMEOUT_MS)

    def _in_sync(self) -> list[tuple[uuid.UUID, int]]:
        """Replicas out of service that count as in sync, where others have what they had."""
        partitions, broker_id = self._broker.partitions, self._broker.broker_id
        out = [(hosted.topic_id, hosted.partition) for hosted in partitions if hosted.offline]
        found = []
        for topic_id, index in dict.fromkeys([*out, *partitions.directories.unavailable, *partitions.directories.lost]):
            state = partitions.image.partition_by_id(topic_id, index)
            if state is not None and broker_id in (*state.isr, *state.elr) and others_have_it(state, broker_id):
                found.append((topic_id, index))
        return found

    def _answered(self, answer: Any) -> None:
        self._under_way = False
        if not isinstance(answer, ReplicasOfflineResponse) or answer.error_code:
            _log.warning("the controller was not told of replicas that are out of service, trying again: %s", answer)
