"""InitProducerId, versions 0 to 5, for idempotent producers: ids from blocks that the controller gives out.

A block is a thousand ids; the next one is asked for before the last is used up, so that producers seldom wait.
Producers with a transactional id get theirs from its coordinator, which takes them from here too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from appliance.base.errors import ErrorCode
from appliance.server.context import Broker
from appliance.server.requests import Pending, Request
from appliance.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from appliance.wire.messages.init_producer_id import InitProducerIdResponse
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

PREFETCH_BELOW = 100
"""Ids left of a block when the next one is asked for."""
WAITING_MAX = 10_000
"""Producers that may wait for a block."""


class ProducerIds:
    """The ids that this broker may give out."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int]] = deque()
        """(next id, end) of each block."""
        self._waiting: deque[Pending] = deque()
        self._asking = False
        self._on_answer: list[Callable[[], None]] = []

    def take(self, broker: Broker) -> int | None:
        """An id that nobody has; None when none is at hand: the next ones are asked for."""
        if self._left() <= PREFETCH_BELOW:
            self._ask(broker)
        return self._take()

    def when_at_hand(self, broker: Broker, then: Callable[[], None]) -> None:
        """Call back once an id is at hand, or the controller could give none."""
        if self._left() <= PREFETCH_BELOW:
            self._ask(broker)
        if self._blocks or not self._asking or len(self._on_answer) >= WAITING_MAX:
            then()
        else:
            self._on_answer.append(then)

    def handle(self, broker: Broker, request: Request) -> Struct | Pending:
        producer_id = self.take(broker)
        if producer_id is not None:
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        if len(self._waiting) >= WAITING_MAX:
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        pending = request.pending()
        self._waiting.append(pending)
        return pending

    def _left(self) -> int:
        return sum(end - first for first, end in self._blocks)

    def _take(self) -> int | None:
        if not self._blocks:
            return None
        producer_id, end = self._blocks[0]
        if producer_id + 1 == end:
            self._blocks.popleft()
        else:
            self._blocks[0] = (producer_id + 1, end)
        return producer_id

    def _ask(self, broker: Broker) -> None:
        if self._asking:
            return
        self._asking = True
        request = AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)

        def done(response: Struct | Exception) -> None:
            self._asking = False
            error = ErrorCode.NONE
            if isinstance(response, AllocateProducerIdsResponse):
                error = ErrorCode(response.error_code)
            else:
                _log.warning("no producer ids from the controller: %s", response)
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if isinstance(response, AllocateProducerIdsResponse) and not error and response.producer_id_len > 0:
                start = response.producer_id_start
                self._blocks.append((start, start + response.producer_id_len))
            self._serve_waiting(broker, error or ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            waiting, self._on_answer = self._on_answer, []
            for then in waiting:
                then()

        broker.controller.call(request, done)

    def _serve_waiting(self, broker: Broker, error: ErrorCode) -> None:
        while self._waiting:
            producer_id = self._take()
            if producer_id is None:
                break
            self._waiting.popleft().answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
        if self._waiting and self._left() == 0:
            # Nothing came, or more waited than a block holds: they ask again, with a fresh block on its way.
            waiting, self._waiting = self._waiting, deque()
            for pending in waiting:
                retriable = error if error.retriable else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                pending.answer(InitProducerIdResponse(error_code=retriable))
