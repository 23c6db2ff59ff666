"""MetadataFetch as the controller serves it: recent commits from memory, else a snapshot; long polls in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from appliance.base.background import Background, Timer
from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.controller.commits import Commit, Snapshot, encode_commit, encode_snapshot
from appliance.controller.log_reader import LogPosition
from appliance.controller.snapshots import snapshot_body
from appliance.server.requests import Pending
from appliance.wire.messages.internal_metadata import MetadataFetchRequest, MetadataFetchResponse

KEPT_COMMITS = 1_000
KEPT_BYTES = 16 << 20
MAX_WAIT_MS = 30_000
WAITERS_MAX = 10_000
SPREAD_MAX_MS = 500
"""How long an answer waits for brokers to take a commit: one that is gone and not fenced yet takes none."""


@dataclass(eq=False, slots=True)
class _Waiter:
    request: MetadataFetchRequest
    pending: Pending
    timer: Timer


@dataclass(eq=False, slots=True)
class _Spread:
    """Somebody who waits until these brokers have taken what is committed up to a position."""

    brokers: set[int]
    position: int
    done: Callable[[], None]
    timer: Timer


class MetadataFeed:
    """All methods are called on the loop's thread."""

    def __init__(self, background: Background, clock: Clock, controller_id: int) -> None:
        self._background = background
        self._clock = clock
        self._controller_id = controller_id
        self._at = LogPosition()
        self._commits: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._snapshot: bytes | None = None
        self._waiters: dict[_Waiter, None] = {}
        self._taken: dict[int, int] = {}
        """By broker: the position behind which it asked last, so it has applied what comes before."""
        self._spreads: dict[_Spread, None] = {}

    def begin(self, at: LogPosition) -> None:
        """The controller took over; this is where the log stands."""
        self._at, self._snapshot = at, None
        self._commits.clear()
        self._bytes = 0

    def committed(self, commit: Commit, at: LogPosition) -> None:
        """A commit was settled (rule M4): keep it and tell those who wait."""
        data = encode_commit(commit)
        self._at, self._snapshot = at, None
        self._commits.append((commit.number, data))
        self._bytes += len(data)
        while len(self._commits) > KEPT_COMMITS or self._bytes > KEPT_BYTES:
            self._bytes -= len(self._commits.popleft()[1])
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.timer.cancel()
            waiter.pending.answer(self._answer(waiter.request))

    def fetch(self, request: MetadataFetchRequest, pending: Pending) -> MetadataFetchResponse | Pending:
        """Answer at once when there is something newer than the position, else when there is or the time is over."""
        newest = self._at.image.position
        self._took(request.broker_id, request.position)
        if request.position > newest:
            return MetadataFetchResponse(
                error_code=ErrorCode.POSITION_OUT_OF_RANGE,
                error_message=f"position {request.position} is beyond {newest}: was the object store rolled back?",
                controller_epoch=self._at.image.controller_epoch,
                position=newest,
            )
        wait_ms = min(request.max_wait_ms, MAX_WAIT_MS)
        if request.position < newest or wait_ms <= 0 or len(self._waiters) >= WAITERS_MAX:
            return self._answer(request)
        waiter = _Waiter(request, pending, self._background.schedule(wait_ms, lambda: self._time_over(waiter)))
        self._waiters[waiter] = None
        pending.on_close(lambda: self._forget(waiter))
        return pending

    def when_spread(self, brokers: Iterable[int], done: Callable[[], None]) -> None:
        """Call `done` when these brokers have taken all that is committed now, or after `SPREAD_MAX_MS`.

        A client that was told that its topic exists turns to any broker next, and a client may remember for long that
        a topic is unknown (librdkafka: half a minute).
        """
        position = self._at.image.position
        behind = {broker_id for broker_id in brokers if self._taken.get(broker_id, -1) < position}
        if not behind or len(self._spreads) >= WAITERS_MAX:
            done()
            return
        spread = _Spread(behind, position, done, self._background.schedule(SPREAD_MAX_MS, lambda: self._spread(spread)))
        self._spreads[spread] = None

    def _took(self, broker_id: int, position: int) -> None:
        self._taken[broker_id] = position
        for spread in list(self._spreads):
            if position >= spread.position:
                spread.brokers.discard(broker_id)
                if not spread.brokers:
                    self._spread(spread)

    def _spread(self, spread: _Spread) -> None:
        if spread in self._spreads:
            del self._spreads[spread]
            spread.timer.cancel()
            spread.done()

    def _forget(self, waiter: _Waiter) -> None:
        waiter.timer.cancel()
        self._waiters.pop(waiter, None)

    def _time_over(self, waiter: _Waiter) -> None:
        if waiter in self._waiters:
            del self._waiters[waiter]
            waiter.pending.answer(self._answer(waiter.request))

    def _answer(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        image = self._at.image
        response = MetadataFetchResponse(controller_epoch=image.controller_epoch, position=image.position)
        position = request.position
        oldest = self._commits[0][0] if self._commits else image.position + 1
        if position < oldest - 1:
            response.snapshot = self._encoded_snapshot()
            return response
        size = 0
        for number, data in self._commits:
            if number > position:
                # At least one, so that a follower never stands still.
                if response.commits and size + len(data) > request.max_bytes:
                    break
                response.commits.append(data)
                size += len(data)
        return response

    def _encoded_snapshot(self) -> bytes:
        if self._snapshot is None:
            image = self._at.image
            self._snapshot = encode_snapshot(
                Snapshot(
                    number=image.position,
                    controller_epoch=image.controller_epoch,
                    writer_id=self._controller_id,
                    timestamp_ms=self._clock.now_ms(),
                    nonce=self._at.nonce,
                    body=snapshot_body(image, self._at.commit_times),
                )
            )
        return self._snapshot
