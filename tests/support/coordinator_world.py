"""Time out of one heap, and a coordinator in it: writes take their time and may fail, and it moves to another broker.

What the coordinator coordinates, how bad a day is, and what must never break is a subclass's to say. `run` checks after
each event.
"""

from __future__ import annotations

import heapq
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import Batch, CoordinatorShard

WALL_START_MS = 1_700_000_000_000


class Violation(AssertionError):
    """Something that must never be was; the message names the seed."""


class CoordinatorWorld(ABC):
    """All random choices come from `random`, in the order of events."""

    request_timeout_ms: int
    """How long a client waits for an answer."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = 0
        self.notes: list[str] = []
        self.log: list[bytes] = []
        self.shard: CoordinatorShard[Any] | None = None
        self.under_way: list[Batch[Any]] = []
        self.waiting: dict[Call, Callable[[Any], None]] = {}
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._tick_due_ms: int | None = None

    # The agenda

    @property
    def now(self) -> Moment:
        return Moment(WALL_START_MS + self.now_ms, self.now_ms)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, self._sequence, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._agenda and self._agenda[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._agenda)
            action()
            self.check()
        self.now_ms = end_ms

    @abstractmethod
    def check(self) -> None:
        """Raises Violation."""

    # The coordinator

    @abstractmethod
    def deliver(self, answer: Answer) -> None:
        """Send an answer on its way; it is taken out of `waiting`."""

    @abstractmethod
    def fate_of_a_write(self) -> tuple[bool, int]:
        """Whether it succeeds, and after how many milliseconds."""

    def take_jobs(self) -> None:
        """Have work for helper threads done; here there is none."""
        return

    def lose_coordinator(self) -> None:
        """Its broker dies or loses the partition; what was under way is in the log, or is not."""
        shard = self.shard
        assert shard is not None
        self.notes.append("moved")
        shard.unload()
        for answer in shard.take_answers():
            self.deliver(answer)
        if self.waiting:
            raise Violation(f"seed {self.seed}: {len(self.waiting)} requests were never answered")
        survive = self.random.randrange(len(self.under_way) + 1)
        self.log += [batch.payload for batch in self.under_way[:survive]]
        self.under_way, self.shard = [], None

    def pump(self) -> None:
        """Do what the coordinator wants done."""
        shard = self.shard
        if shard is None:
            return
        while (batch := shard.take_batch(self.now)) is not None:
            self.under_way.append(batch)
            if len(self.under_way) == 1:
                self._append_next()
        for answer in shard.take_answers():
            self.deliver(answer)
        self.take_jobs()
        due_ms = shard.next_due_ms()
        if due_ms is not None and (self._tick_due_ms is None or due_ms < self._tick_due_ms):
            self._tick_due_ms = due_ms
            self.after(max(due_ms - self.now_ms, 0), partial(self._tick, due_ms))

    def _tick(self, due_ms: int) -> None:
        if self._tick_due_ms == due_ms:
            self._tick_due_ms = None
        if self.shard is not None:
            self.shard.tick(self.now)
            self.pump()

    def _append_next(self) -> None:
        shard, batch = self.shard, self.under_way[0]
        succeeds, delay_ms = self.fate_of_a_write()

        def done() -> None:
            if shard is not self.shard or shard is None:
                return
            self.under_way.remove(batch)
            if succeeds:
                self.log.append(batch.payload)
            else:
                self.notes.append("write failed")
            shard.batch_done(batch, ErrorCode.NONE if succeeds else ErrorCode.NOT_ENOUGH_REPLICAS, self.now)
            if self.under_way:
                self._append_next()
            self.pump()

        self.after(delay_ms, done)

    def answered_in_time(self, done: Callable[[Any], None]) -> tuple[list[Any], Callable[[Any], None]]:
        """What came, and what to call with it: once, with None when nothing came in time."""
        outcome: list[Any] = []

        def once(response: Any) -> None:
            if not outcome:
                outcome.append(response)
                done(response)

        self.after(self.request_timeout_ms, lambda: once(None))
        return outcome, once
