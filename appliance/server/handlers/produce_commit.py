"""Produce requests of the short way that wait for the high watermark (acks=-1 with more than one replica).

One that waits is the place of its answer in its connection and the waiter of its partition in one object; the answer is
packed from the same prepared frame as an answer that need not wait. Time-outs cost nothing per request: while anybody
waits, one timer looks through those who do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from appliance.base.errors import ErrorCode
from appliance.server.requests import Pending

if TYPE_CHECKING:
    from appliance.server.connection import Connection
    from appliance.server.context import Broker, Partition
    from appliance.server.handlers.produce_fast import Shape

LOOK_MS = 50
"""How much later than `timeout_ms` REQUEST_TIMED_OUT may be answered."""


class CommitWait(Pending):
    """A written batch that is not committed yet."""

    __slots__ = ("base_offset", "deadline", "hosted", "index", "shape")

    def __init__(
        self,
        connection: Connection,
        shape: Shape,
        correlation_id: int,
        hosted: Partition,
        index: int,
        base_offset: int,
        deadline: int,
    ) -> None:
        self.connection = connection
        self.api_version = shape.version
        self.correlation_id = correlation_id
        self.blocks = False
        self.items = None
        self.throttle_time_ms = 0
        # What is metered takes the long way.
        self.meter = None
        self._on_close = None
        self.shape = shape
        self.hosted = hosted
        self.index = index
        self.base_offset = base_offset
        self.deadline = deadline
        """The look at which its time is over."""

    def committed(self) -> None:
        """The high watermark has passed it."""
        if self.items is None:
            shape = self.shape
            start = self.hosted.log.log_start_offset
            frame = shape.pack(
                shape.frame_size,
                self.correlation_id,
                shape.head,
                self.index,
                0,
                self.base_offset,
                -1,
                start,
                shape.tail,
            )
            self.items = [frame]
            self.connection.answered(self)

    def failed(self, error: ErrorCode) -> None:
        """It will not be committed under this leader, or not in time."""
        if self.items is None:
            shape = self.shape
            start = self.hosted.log.log_start_offset
            frame = shape.pack(
                shape.frame_size, self.correlation_id, shape.head, self.index, error, -1, -1, start, shape.tail
            )
            self.answer_items([frame])


class CommitWaits:
    """Those of one broker, and their time-outs. All methods are called on the loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._looks = 0
        self._watched: dict[Partition, None] = {}

    def wait(
        self,
        connection: Connection,
        shape: Shape,
        correlation_id: int,
        hosted: Partition,
        index: int,
        base_offset: int,
        required_offset: int,
    ) -> CommitWait:
        """The place of an answer that leaves when `required_offset` is committed."""
        deadline = self._looks + 1 + (shape.timeout_ms + LOOK_MS - 1) // LOOK_MS
        place = CommitWait(connection, shape, correlation_id, hosted, index, base_offset, deadline)
        hosted.acks.wait(required_offset, place)
        if hosted not in self._watched:
            if not self._watched:
                self._broker.background.schedule(LOOK_MS, self._look)
            self._watched[hosted] = None
        return place

    def _look(self) -> None:
        self._looks += 1
        looks = self._looks
        for hosted in list(self._watched):
            if not hosted.acks:
                del self._watched[hosted]
                continue
            for waiter in hosted.acks.waiters():
                if isinstance(waiter, CommitWait) and waiter.deadline <= looks:
                    waiter.failed(ErrorCode.REQUEST_TIMED_OUT)
        if self._watched:
            self._broker.background.schedule(LOOK_MS, self._look)
