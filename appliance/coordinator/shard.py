"""One partition's coordinator: decide -> append -> replay when committed -> answer. Pure.

A `Machine` decides. The shard queues the records it wants written, joins what waits into batches, and when a batch is
committed replays its records in order and lets the answers go. The machine's stored state therefore always equals the
committed part of the log, which is what the next coordinator will load: there is nothing to roll back.

Whoever owns a shard does the input and output for it:

- give it requests (`submit`) and time (`tick`, at `next_due_ms` at the latest),
- append what `take_batch` returns, in that order, and report each outcome once by `batch_done`,
- send what `take_answers` returns.

Some machines can decide about a key before its earlier writes are committed (`Foresight`), as if they were. What was
decided so is appended when no earlier batch of its key is open any more, and is refused with them should they fail. The
answer waits, too, even if it needs no record: what it says may rest on one that is still on its way.

A write that is not decided within `write_timeout_ms` is answered with an error, but stays in its place: should it be
committed after all, it is replayed then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Generic, Protocol, TypeVar

from appliance.base.errors import ErrorCode
from appliance.coordinator.calls import Answer, Call, Effect, Write
from appliance.coordinator.deadlines import Deadlines
from appliance.coordinator.failures import told
from appliance.coordinator.moment import Moment
from appliance.records.builder import build_batch
from appliance.wire.schema import Struct

R = TypeVar("R")
W = TypeVar("W", contravariant=True)

KeyValue = tuple[bytes, bytes | None]
_RECORD_OVERHEAD_BYTES = 32
_BATCH_OVERHEAD_BYTES = 128
EVENTS_PER_TICK_MAX = 1_000
"""Deadlines handled in one go; the others are due in the next tick, so that requests come in between."""

PARKED_AT_ONCE_MAX = 25
"""Calls of one key that were parked and are decided in one go; the others wait for what these write."""


class Machine(Protocol[R]):
    """What decides. Its stored state changes in `replay` only."""

    @property
    def deadlines(self) -> Deadlines[Any, Any]:
        """What the machine waits for."""

    def handle(self, call: Call, now: Moment) -> list[Effect[R]]:
        """Decide a request."""

    def due(self, event: Any, now: Moment) -> list[Effect[R]]:
        """A deadline has passed."""

    def replay(self, record: R) -> None:
        """Take over a committed record."""

    def written(self, write: Write[R], now: Moment) -> list[Effect[R]]:
        """A write with a follow-up is committed and replayed."""

    def not_written(self, write: Write[R], error: ErrorCode, now: Moment) -> list[Effect[R]]:
        """A write with a follow-up failed; after REQUEST_TIMED_OUT it may still be committed later."""

    def unload(self) -> list[Effect[R]]:
        """Another broker leads now: answer whoever waits."""

    def refuse(self, call: Call, error: ErrorCode) -> Struct:
        """The answer to `call` that says nothing but `error`."""

    def encode(self, record: R) -> KeyValue:
        """Key and value as they stand in the log."""


class Foresight(Protocol[W]):
    """Of a machine that has it as `foresight`: it can decide upon what is not committed yet."""

    def begin(self, call: Call, key: str, writes: Iterable[Write[W]]) -> bool:
        """Whether `handle` may decide `call` as if `writes`, all of this key that are open, were committed.

        From the first yes until `end` the machine decides so about this key.
        """

    def follow(self, write: Write[W]) -> None:
        """One write more of a key that is decided about so."""

    def end(self, key: str, now: Moment, *, failed: bool) -> None:
        """What is committed counts again: that is all of it, or else a part will never be."""


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """Bounds of one shard, and how long it waits."""

    batch_max_bytes: int = 1_048_588
    """Largest batch, and so largest write: the partition's `max.message.bytes`."""
    queued_writes_max: int = 10_000
    """Writes that wait or are under way; more are refused with COORDINATOR_NOT_AVAILABLE."""
    parked_calls_max: int = 1_000
    """Calls that wait for earlier writes of their key; more are refused likewise."""
    codec: int = 0
    """How batches are compressed: `offsets.topic.compression.codec`."""
    write_timeout_ms: int = 5_000
    """`offsets.commit.timeout.ms`."""


@dataclass(eq=False, slots=True)
class _Queued(Generic[R]):
    write: Write[R]
    encoded: list[KeyValue]
    size_in_bytes: int
    expires_ms: int
    foresees: bool = False
    """Whether it was decided upon earlier writes of its key that were open then."""
    under_way: bool = False
    answered: bool = False
    riders: list[Answer] = field(default_factory=list)
    """Answers that were decided upon this write."""

    @property
    def answers(self) -> Iterator[Answer]:
        yield from self.write.answers
        yield from self.riders


@dataclass(eq=False, slots=True)
class Batch(Generic[R]):
    """Writes on their way into the log as one batch."""

    payload: bytes
    parts: list[_Queued[R]] = field(repr=False)


class CoordinatorShard(Generic[R]):
    """The coordinator of one partition, from the end of its load until it is unloaded."""

    def __init__(self, machine: Machine[R], limits: ShardLimits) -> None:
        self.machine = machine
        self.limits = limits
        self._answers: list[Answer] = []
        self._queue: deque[_Queued[R]] = deque()
        self._under_way: deque[Batch[R]] = deque()
        self._open: dict[str, deque[_Queued[R]]] = {}
        """By key, the writes that wait or are under way."""
        self._foresight: Foresight[R] | None = getattr(machine, "foresight", None)
        self._foreseen: dict[str, None] = {}
        """Keys about which the machine decides as if all their open writes were committed."""
        self._parked: dict[str, deque[Call]] = {}
        self._parked_count = 0
        self._writes_open = 0
        self._unloaded = False

    def submit(self, call: Call, now: Moment, *, after_writes_of: str | None = None) -> None:
        """Decide a request.

        Args:
            after_writes_of: decide only when no write of this key is open, because the decision needs to see their
                outcome; unless the machine can foresee that.
        """
        if self._unloaded:
            self._refuse(call, ErrorCode.NOT_COORDINATOR)
        elif self._writes_open >= self.limits.queued_writes_max:
            self._refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif after_writes_of is None or after_writes_of not in self._open:
            self._take(self.machine.handle(call, now), now)
        elif after_writes_of not in self._parked and self._foresees(call, after_writes_of):
            self._take_foreseen(after_writes_of, self.machine.handle(call, now), now)
        elif self._parked_count >= self.limits.parked_calls_max:
            self._refuse(call, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._parked.setdefault(after_writes_of, deque()).append(call)
            self._parked_count += 1

    def decide(self, decision: Callable[[], list[Effect[R]]], now: Moment) -> None:
        """Carry out what the machine decides about something that is not a request."""
        if not self._unloaded:
            self._take(decision(), now)

    def tick(self, now: Moment) -> None:
        """Do what is due."""
        if self._unloaded:
            return
        for _ in range(EVENTS_PER_TICK_MAX):
            event = self.machine.deadlines.pop_due(now.monotonic_ms)
            if event is None:
                break
            self._take(self.machine.due(event, now), now)
        # Every write has the same time, so they expire in their order.
        for queued in list(takewhile(lambda queued: queued.expires_ms <= now.monotonic_ms, self._all_queued())):
            self._fail(queued, ErrorCode.REQUEST_TIMED_OUT, now)

    def next_due_ms(self) -> int | None:
        """Monotonic time of the next `tick`, if any."""
        due_ms = self.machine.deadlines.next_due_ms()
        if self.idle:
            return due_ms
        for queued in self._all_queued():
            if not queued.answered:
                return queued.expires_ms if due_ms is None else min(due_ms, queued.expires_ms)
        return due_ms

    def take_answers(self) -> list[Answer]:
        """The answers that may leave now."""
        answers, self._answers = self._answers, []
        return answers

    def take_batch(self, now: Moment) -> Batch[R] | None:
        """The next batch to append, as large as the limit allows; None when nothing waits."""
        if not self._queue:
            return None
        first = self._queue[0].write
        if first.marker:
            return self._under_way_with(first.marker, [self._queue.popleft()])
        parts: list[_Queued[R]] = []
        size_in_bytes = _BATCH_OVERHEAD_BYTES
        # A batch belongs to one transaction, or to none.
        while self._queue and self._queue[0].write.producer == first.producer and not self._queue[0].write.marker:
            if self._has_to_wait(self._queue[0]):
                break
            size_in_bytes += self._queue[0].size_in_bytes
            if parts and size_in_bytes > self.limits.batch_max_bytes:
                break
            parts.append(self._queue.popleft())
        if not parts:
            return None
        records = [(now.wall_ms, key, value, ()) for part in parts for key, value in part.encoded]
        producer_id, producer_epoch = first.producer or (-1, -1)
        payload = build_batch(
            records,
            codec=self.limits.codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=first.producer is not None,
        )
        for part in parts:
            part.encoded = []
        return self._under_way_with(payload, parts)

    def _under_way_with(self, payload: bytes, parts: list[_Queued[R]]) -> Batch[R]:
        for part in parts:
            part.under_way = True
        batch = Batch(payload, parts)
        self._under_way.append(batch)
        return batch

    def batch_done(self, batch: Batch[R], error: ErrorCode, now: Moment) -> None:
        """The batch is committed, or `error` says why not. Reports come in the order of the batches."""
        if self._unloaded:
            return
        self._under_way.remove(batch)
        if error is not ErrorCode.NONE:
            self._batch_failed(batch, error, now)
            return
        for part in batch.parts:
            for record in part.write.records:
                self.machine.replay(record)
            if not part.answered:
                self._answers.extend(part.answers)
                self._follow_up(part.write, now)
            self._finished(part, now)

    def _batch_failed(self, batch: Batch[R], error: ErrorCode, now: Moment) -> None:
        failed = list(batch.parts)
        for key in dict.fromkeys(part.write.key for part in batch.parts):
            if key in self._foreseen:
                self._look_back(key, now, failed=True)
                failed += [queued for queued in self._open[key] if queued.foresees and not queued.under_way]
        gone = {id(queued) for queued in failed[len(batch.parts) :]}
        if gone:
            self._queue = deque(queued for queued in self._queue if id(queued) not in gone)
        for queued in failed:
            self._fail(queued, error, now)
        for queued in failed:
            self._finished(queued, now)

    def unload(self) -> None:
        """Another broker leads the partition now. Everybody who waits is sent there."""
        if self._unloaded:
            return
        for queued in self._all_queued():
            if not queued.answered:
                for answer in queued.answers:
                    self._refuse(answer.call, ErrorCode.NOT_COORDINATOR)
        for calls in self._parked.values():
            for call in calls:
                self._refuse(call, ErrorCode.NOT_COORDINATOR)
        self._answers.extend(effect for effect in self.machine.unload() if isinstance(effect, Answer))
        self._queue.clear()
        self._under_way.clear()
        self._parked.clear()
        self._open.clear()
        self._foreseen.clear()
        self._unloaded = True

    @property
    def idle(self) -> bool:
        """Whether no write waits or is under way."""
        return not self._queue and not self._under_way

    def _all_queued(self) -> Iterable[_Queued[R]]:
        for batch in self._under_way:
            yield from batch.parts
        yield from self._queue

    def _take(self, effects: list[Effect[R]], now: Moment) -> None:
        if not effects:
            return
        if len(effects) == 1 and isinstance(effects[0], Answer):
            self._answers.append(effects[0])
            return
        writes = [effect for effect in effects if not isinstance(effect, Answer)]
        overtaken = {write.key for write in writes if write.only_alone and write.key in self._open}
        for effect in effects:
            if isinstance(effect, Answer):
                self._answers.append(effect)
            elif not (effect.only_alone and effect.key in overtaken):
                self._enqueue(effect, now)

    # What is decided upon open writes

    def _foresees(self, call: Call, key: str) -> bool:
        """Whether `call` can be decided now, though writes of its key are open."""
        if self._foresight is None or self._open[key][0].answered:
            # One that has timed out may stay open for long: nothing more is built on it.
            return False
        if not self._foresight.begin(call, key, (queued.write for queued in self._open[key])):
            return False
        self._foreseen[key] = None
        return True

    def _take_foreseen(self, key: str, effects: list[Effect[R]], now: Moment) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self._open[key][-1].riders.append(effect)
            elif not effect.only_alone:
                self._enqueue(effect, now, foresees=True)

    def _has_to_wait(self, queued: _Queued[R]) -> bool:
        """Whether it was decided upon a write that stands in an earlier batch, which may still fail."""
        return queued.foresees and self._open[queued.write.key][0].under_way

    def _look_back(self, key: str, now: Moment, *, failed: bool) -> None:
        del self._foreseen[key]
        if self._foresight is not None:
            self._foresight.end(key, now, failed=failed)

    def _enqueue(self, write: Write[R], now: Moment, *, foresees: bool = False) -> None:
        encoded = [] if write.marker else [self.machine.encode(record) for record in write.records]
        size_in_bytes = len(write.marker) + sum(
            _RECORD_OVERHEAD_BYTES + len(key) + len(value or b"") for key, value in encoded
        )
        queued = _Queued(write, encoded, size_in_bytes, now.monotonic_ms + self.limits.write_timeout_ms, foresees)
        if size_in_bytes + _BATCH_OVERHEAD_BYTES > self.limits.batch_max_bytes:
            self._fail(queued, ErrorCode.RECORD_LIST_TOO_LARGE, now)
            return
        self._open.setdefault(write.key, deque()).append(queued)
        self._writes_open += 1
        self._queue.append(queued)
        if self._foresight is not None and write.key in self._foreseen:
            self._foresight.follow(write)

    def _fail(self, queued: _Queued[R], error: ErrorCode, now: Moment) -> None:
        if queued.answered:
            return
        queued.answered = True
        for answer in queued.answers:
            self._refuse(answer.call, told(error))
        if queued.write.follow_up is not None:
            self._take(self.machine.not_written(queued.write, error, now), now)

    def _follow_up(self, write: Write[R], now: Moment) -> None:
        if write.follow_up is not None:
            self._take(self.machine.written(write, now), now)

    def _finished(self, queued: _Queued[R], now: Moment) -> None:
        self._writes_open -= 1
        key = queued.write.key
        still_open = self._open[key]
        still_open.remove(queued)
        if still_open:
            return
        del self._open[key]
        if key in self._foreseen:
            self._look_back(key, now, failed=False)
        calls = self._parked.pop(key, deque())
        decided = 0
        while calls:
            if key not in self._open:
                self._take(self.machine.handle(calls[0], now), now)
            elif decided < PARKED_AT_ONCE_MAX and self._foresees(calls[0], key):
                self._take_foreseen(key, self.machine.handle(calls[0], now), now)
            else:
                self._parked[key] = calls
                return
            calls.popleft()
            self._parked_count -= 1
            decided += 1

    def _refuse(self, call: Call, error: ErrorCode) -> None:
        self._answers.append(Answer(call, self.machine.refuse(call, error)))
