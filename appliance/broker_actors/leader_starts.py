"""New leaders that wait until earlier ones are quiet (P1): living ones are asked, the silence of others is awaited."""

from __future__ import annotations

import logging
from typing import Protocol

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_link import BrokerLink
from appliance.broker_actors.hosted_partition import HostedPartition
from appliance.broker_actors.partition_host import PartitionHost
from appliance.partition.leader_start import BrokerView, LeaderStart
from appliance.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

ASK_VERSION = 4
ASK_TIMEOUT_MS = 500
LOOK_AGAIN_MS = 20
KNOWS = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""What a broker answers that has heard of the new epoch, and serves no older one."""


class StartHost(Protocol):
    """What this needs of its broker."""

    @property
    def broker_id(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def background(self) -> Background: ...
    @property
    def partitions(self) -> PartitionHost: ...

    def brokers(self) -> dict[int, BrokerView]: ...

    def link_to(self, broker_id: int) -> BrokerLink | None: ...


class LeaderStarts:
    """All methods are called on the loop's thread."""

    def __init__(self, host: StartHost) -> None:
        self._host = host
        self._waiting: dict[HostedPartition, LeaderStart] = {}
        self._asked: dict[int, BrokerLink] = {}
        """Links on which a question is under way; each is used once."""
        self._timer: Timer | None = None

    def close(self) -> None:
        self._waiting.clear()
        for link in self._asked.values():
            link.close()
        self._asked.clear()
        if self._timer is not None:
            self._timer.cancel()

    def wait_for(self, hosted: HostedPartition) -> None:
        if hosted.start is not None:
            self._waiting[hosted] = hosted.start
            self._look_in(0)

    def look(self) -> None:
        """Begin what may begin; ask whom nobody has asked yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        now_ms, brokers = self._host.clock.monotonic_ms(), self._host.brokers()
        ask: dict[int, list[HostedPartition]] = {}
        for hosted, start in list(self._waiting.items()):
            if hosted.start is not start:
                del self._waiting[hosted]
                continue
            waits = start.waits(brokers, now_ms)
            if waits.over:
                del self._waiting[hosted]
                self._host.partitions.begun(hosted)
            for broker_id in waits.ask:
                ask.setdefault(broker_id, []).append(hosted)
        for broker_id, partitions in ask.items():
            if broker_id not in self._asked:
                self._ask(broker_id, partitions)
        if self._waiting:
            self._look_in(LOOK_AGAIN_MS)

    def _look_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.background.schedule(delay_ms, self._timed)

    def _timed(self) -> None:
        self._timer = None
        self.look()

    def _ask(self, broker_id: int, partitions: list[HostedPartition]) -> None:
        link = self._host.link_to(broker_id)
        if link is None:
            return
        self._asked[broker_id] = link
        topics: dict[str, OffsetForLeaderTopic] = {}
        starts: dict[tuple[str, int], LeaderStart] = {}
        for hosted in partitions:
            start = self._waiting[hosted]
            starts[hosted.topic, hosted.partition] = start
            topic = topics.setdefault(hosted.topic, OffsetForLeaderTopic(topic=hosted.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=hosted.partition,
                    current_leader_epoch=start.leader_epoch,
                    leader_epoch=start.leader_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self._host.broker_id, topics=list(topics.values()))

        def done(answer: Struct | Exception) -> None:
            if self._asked.get(broker_id) is link:
                del self._asked[broker_id]
            link.close()
            if isinstance(answer, OffsetForLeaderEpochResponse):
                for topic in answer.topics:
                    for row in topic.partitions:
                        start = starts.get((topic.topic, row.partition))
                        if start is not None and row.error_code in KNOWS:
                            start.answered.add(broker_id)
                self._look_in(0)

        link.call(request, ASK_VERSION, ASK_TIMEOUT_MS, done)
