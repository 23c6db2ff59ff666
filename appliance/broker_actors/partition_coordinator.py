"""The coordinator of one internal partition on this broker, between its machine and the world.

Thin: a machine decides (`appliance.groups`, `appliance.transactions`), a shard keeps the order of writes and answers
(`appliance.coordinator`). Here they get a log to write to, a thread to load in, timers and the time. All methods are
called on the loop's thread.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from appliance.base.background import Background, Timer
from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Call, Effect
from appliance.coordinator.failures import told
from appliance.coordinator.loader import LoadSummary
from appliance.coordinator.moment import Moment
from appliance.coordinator.shard import Batch, CoordinatorShard, Machine, ShardLimits
from appliance.wire.schema import Struct

_log = logging.getLogger(__name__)

LOAD_POLL_MS = 20
"""How often a new leader looks whether all that it found in its log is committed."""
LOAD_RETRY_MS = 1_000
"""How long a load that failed waits for its next try."""
REFUSED_POLL_MS = 500
"""How often timers look whether a broker that may not serve just now may serve again."""

SendAnswer = Callable[[Struct], None]

R = TypeVar("R")
M = TypeVar("M", bound=Machine[Any])
S = TypeVar("S")


class InternalPartition(Protocol):
    """A partition of an internal topic, as `HostedPartition` is one."""

    topic: str
    partition: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    recovering: bool

    @property
    def config(self) -> Any: ...

    def refusal(self) -> ErrorCode: ...

    def append_records(self, batch: bytes, on_committed: Callable[[ErrorCode, int], None]) -> None: ...

    def read_committed_batches(self) -> Iterator[memoryview]: ...


class CoordinatorHost(Protocol):
    """What the coordinators of a broker share."""

    @property
    def background(self) -> Background: ...

    def moment(self) -> Moment:
        """The time on both clocks."""

    def limits_of(self, hosted: Any) -> ShardLimits:
        """Bounds of the coordinator of this partition."""


class PartitionCoordinator(ABC, Generic[M, R, S]):
    """From the beginning of this broker's leadership of the partition to its end."""

    def __init__(self, host: CoordinatorHost, hosted: InternalPartition) -> None:
        self._host = host
        self._hosted = hosted
        self._machine: M | None = None
        self._shard: CoordinatorShard[R] | None = None
        self._waiting: dict[Call, SendAnswer] = {}
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._flush_posted = False
        self._was_refused = False
        self._ended = False

    def __repr__(self) -> str:
        hosted = self._hosted
        return f"coordinator of {hosted.topic}-{hosted.partition} in leader epoch {hosted.leader_epoch}"

    # What each kind of coordinator says itself

    @abstractmethod
    def _read(self) -> tuple[S, LoadSummary]:
        """Read the stored state from the log. Runs in a helper thread."""

    @abstractmethod
    def _begin(self, stored: S) -> M:
        """The machine over this state."""

    @abstractmethod
    def _refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""

    @abstractmethod
    def _first_effects(self, machine: M, now: Moment) -> list[Effect[R]]:
        """The state is loaded."""

    def _back_in_service(self, machine: M, now: Moment) -> list[Effect[R]]:
        """This broker may serve again, after nobody could reach it for a while."""
        return []

    def _after_step(self, machine: M) -> None:
        """Something was decided or committed."""

    # Loading

    def load(self) -> None:
        """Read the log in a helper thread; until that is done everybody is told to come back."""
        if self._ended:
            return
        hosted, host = self._hosted, self._host
        if hosted.recovering or hosted.high_watermark < hosted.log_end_offset:
            # What is in the log already may not be given out before it is committed, nor be left out.
            host.background.schedule(LOAD_POLL_MS, self.load)
            return
        started_ms = host.moment().monotonic_ms

        def done(result: tuple[S, LoadSummary] | Exception) -> None:
            if self._ended:
                return
            if isinstance(result, Exception):
                _log.error("%r cannot be loaded and is tried again: %s", self, result)
                host.background.schedule(LOAD_RETRY_MS, self.load)
                return
            stored, summary = result
            self._loaded(stored)
            took_ms = host.moment().monotonic_ms - started_ms
            if summary.records:
                _log.info("%r loaded %d records in %d ms", self, summary.records, took_ms)

        host.background.run(self._read, done)

    def _loaded(self, stored: S) -> None:
        machine = self._machine = self._begin(stored)
        self._shard = CoordinatorShard(machine, self._host.limits_of(self._hosted))
        self._do(lambda shard, now: shard.decide(lambda: self._first_effects(machine, now), now))

    # Requests

    def submit(self, call: Call, answer: SendAnswer, after_writes_of: str | None) -> None:
        """Decide a request that concerns this partition."""
        refusal = self._refusal()
        if refusal is not ErrorCode.NONE:
            answer(self._refuse(call, refusal))
            return
        self._waiting[call] = answer
        self._do(lambda shard, now: shard.submit(call, now, after_writes_of=after_writes_of))

    def view(self) -> M | ErrorCode:
        """The machine, to be looked at; or why it cannot be."""
        refusal = self._refusal()
        if refusal is ErrorCode.NONE and self._machine is not None:
            return self._machine
        return refusal

    def _refusal(self) -> ErrorCode:
        """Why no request is served just now."""
        if self._ended:
            return ErrorCode.NOT_COORDINATOR
        refusal = self._hosted.refusal()
        if refusal is not ErrorCode.NONE:
            return told(refusal)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._shard is None else ErrorCode.NONE

    def end(self) -> None:
        """This broker leads the partition no longer, or it goes down."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        shard, self._shard, self._machine = self._shard, None, None
        if shard is not None:
            shard.unload()
            self._send(shard)

    # The shard's input and output

    def _do(self, action: Callable[[CoordinatorShard[R], Moment], None]) -> None:
        shard = self._shard
        if shard is None:
            return
        try:
            action(shard, self._host.moment())
        except Exception:
            self._failed()
            return
        self._send(shard)
        if self._machine is not None:
            self._after_step(self._machine)
        if not shard.idle and not self._flush_posted:
            # What else is decided in this turn of the loop goes into the same batch.
            self._flush_posted = True
            self._host.background.post(self._flush)
        self._arm(shard)

    def _failed(self) -> None:
        """We did something wrong. The log is the truth: begin again from there."""
        _log.exception("%r failed and is loaded again", self)
        shard, self._shard, self._machine = self._shard, None, None
        if shard is not None:
            shard.unload()
            self._send(shard)
        for call, answer in list(self._waiting.items()):
            answer(self._refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._waiting.clear()
        self._host.background.schedule(LOAD_RETRY_MS, self.load)

    def _send(self, shard: CoordinatorShard[R]) -> None:
        for each in shard.take_answers():
            answer = self._waiting.pop(each.call, None)
            if answer is not None:
                answer(each.response)

    def _flush(self) -> None:
        self._flush_posted = False
        shard = self._shard
        while shard is not None and shard is self._shard:
            batch = shard.take_batch(self._host.moment())
            if batch is None:
                return
            self._append(shard, batch)

    def _append(self, shard: CoordinatorShard[R], batch: Batch[R]) -> None:
        def on_committed(error: ErrorCode, base_offset: int) -> None:
            if shard is self._shard:
                self._do(lambda shard, now: shard.batch_done(batch, error, now))

        self._hosted.append_records(batch.payload, on_committed)

    def _arm(self, shard: CoordinatorShard[R]) -> None:
        due_ms = shard.next_due_ms()
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        delay_ms = max(due_ms - self._host.moment().monotonic_ms, 0)
        self._timer = self._host.background.schedule(delay_ms, self._due)

    def _due(self) -> None:
        self._timer = None
        machine = self._machine
        if machine is None:
            return
        if self._hosted.refusal() is not ErrorCode.NONE:
            # Nobody can reach us now, so nobody is late.
            self._was_refused = True
            self._timer_due_ms = self._host.moment().monotonic_ms + REFUSED_POLL_MS
            self._timer = self._host.background.schedule(REFUSED_POLL_MS, self._due)
            return
        if self._was_refused:
            self._was_refused = False
            self._do(lambda shard, now: shard.decide(lambda: self._back_in_service(machine, now), now))
        self._do(lambda shard, now: shard.tick(now))
