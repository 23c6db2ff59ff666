"""Markers of decided transactions, on their way to the leaders of their partitions.

Those for one broker leave together, one request at a time. What fails in a way that may pass is tried again until it
succeeds or the coordinator has moved: a decided transaction must end everywhere. All methods are called on the loop's
thread.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from appliance.base.errors import ErrorCode
from appliance.broker_actors.broker_links import BrokerLinks
from appliance.server.handlers.txn_markers import write_marker
from appliance.transactions.context import Ending
from appliance.transactions.states import TransactionState
from appliance.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

VERSION = 2
MARKERS_PER_REQUEST_MAX = 1_000
REQUEST_TIMEOUT_MS = 10_000
FIRST_BACKOFF_MS = 20
BACKOFF_MAX_MS = 1_000
UNKNOWN_PATIENCE_MS = 2_000
"""So long a partition must be unknown to count as deleted: a new coordinator's metadata may be a little old."""

_WRITTEN = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
"""With an epoch that is too old, a later marker stands there."""


class Coordinator(Protocol):
    """Whose markers are sent."""

    epoch: int

    def wants(self, ending: Ending) -> bool: ...

    def marker_written(self, ending: Ending, topic: str, partition: int) -> None: ...


@dataclass(eq=False, slots=True)
class _Job:
    """One marker for one partition."""

    coordinator: Coordinator
    ending: Ending
    topic: str
    partition: int
    tries: int = 0
    unknown_since_ms: int = -1

    def marker(self) -> WritableTxnMarker:
        ended = self.ending.transaction
        return WritableTxnMarker(
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
            transaction_result=ended.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self.coordinator.epoch,
            transaction_version=ended.client_version,
        )

    @property
    def is_wanted(self) -> bool:
        return self.coordinator.wants(self.ending)


class MarkerSender:
    """All markers of a broker's coordinators."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._queues: dict[int, deque[_Job]] = {}
        self._links = BrokerLinks(broker)
        self._in_flight: set[int] = set()
        self._closed = False

    def send(self, coordinator: Coordinator, ending: Ending) -> None:
        """Have a transaction's markers written; the coordinator hears of each."""
        self._place([_Job(coordinator, ending, topic, partition) for topic, partition in sorted(ending.left)])

    def close(self) -> None:
        self._closed = True
        self._links.close()
        self._queues.clear()

    def _place(self, jobs: list[_Job]) -> None:
        """Bring each to where its partition's leader is now."""
        if self._closed:
            return
        leaders: dict[int, None] = {}
        later: list[_Job] = []
        for job in jobs:
            if not job.is_wanted:
                continue
            state = self._broker.image.partition(job.topic, job.partition)
            if state is None:
                if self._is_deleted(job):
                    job.coordinator.marker_written(job.ending, job.topic, job.partition)
                else:
                    later.append(job)
            elif state.leader == self._broker.broker_id:
                write_marker(self._broker, job.marker(), job.topic, job.partition, partial(self._answered, job))
            elif state.leader < 0:
                later.append(job)
            else:
                self._queues.setdefault(state.leader, deque()).append(job)
                leaders[state.leader] = None
        for leader in leaders:
            self._send_next(leader)
        self._try_again(later)

    def _is_deleted(self, job: _Job) -> bool:
        now_ms = self._broker.clock.monotonic_ms()
        if job.unknown_since_ms < 0:
            job.unknown_since_ms = now_ms
        return bool(now_ms - job.unknown_since_ms >= UNKNOWN_PATIENCE_MS)

    def _answered(self, job: _Job, error: ErrorCode) -> None:
        if error in _WRITTEN:
            job.coordinator.marker_written(job.ending, job.topic, job.partition)
        else:
            self._failed([job], error)

    def _failed(self, jobs: list[_Job], error: object) -> None:
        if jobs[0].tries in (3, 30):
            first = jobs[0]
            name = error.name if isinstance(error, ErrorCode) else error
            _log.warning(
                "the marker of %s for %s-%d is not written yet: %s",
                first.ending.transaction.transactional_id,
                first.topic,
                first.partition,
                name,
            )
        self._try_again(jobs)

    def _try_again(self, jobs: list[_Job]) -> None:
        if not jobs or self._closed:
            return
        delay_ms = min(BACKOFF_MAX_MS, FIRST_BACKOFF_MS << min(jobs[0].tries, 10))
        for job in jobs:
            job.tries += 1
        self._broker.background.schedule(delay_ms, lambda: self._place(jobs))

    def _send_next(self, leader: int) -> None:
        queue = self._queues.get(leader)
        if not queue or leader in self._in_flight:
            return
        jobs: list[_Job] = []
        while queue and len(jobs) < MARKERS_PER_REQUEST_MAX:
            job = queue.popleft()
            if job.is_wanted:
                jobs.append(job)
        if not jobs:
            return
        link = self._links.to(leader)
        if link is None:
            self._failed(jobs, f"broker {leader} has no address")
            return
        # One marker for each transaction, with all of its partitions at that broker.
        markers: dict[int, WritableTxnMarker] = {}
        topics: dict[tuple[int, str], WritableTxnMarkerTopic] = {}
        for job in jobs:
            key = id(job.ending)
            marker = markers.get(key)
            if marker is None:
                marker = markers[key] = job.marker()
            topic = topics.get((key, job.topic))
            if topic is None:
                topic = topics[key, job.topic] = WritableTxnMarkerTopic(name=job.topic)
                marker.topics.append(topic)
            topic.partition_indexes.append(job.partition)
        request = WriteTxnMarkersRequest(markers=list(markers.values()))
        self._in_flight.add(leader)
        places = {key: number for number, key in enumerate(markers)}
        link.call(request, VERSION, REQUEST_TIMEOUT_MS, lambda answer: self._came(leader, jobs, places, answer))

    def _came(self, leader: int, jobs: list[_Job], places: dict[int, int], answer: Struct | Exception) -> None:
        self._in_flight.discard(leader)
        if isinstance(answer, WriteTxnMarkersResponse):
            codes = {
                (number, topic.name, partition.partition_index): ErrorCode(partition.error_code)
                for number, marker in enumerate(answer.markers)
                for topic in marker.topics
                for partition in topic.partitions
            }
            for job in jobs:
                code = codes.get((places[id(job.ending)], job.topic, job.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                self._answered(job, code)
        else:
            self._failed(jobs, answer)
        self._send_next(leader)
