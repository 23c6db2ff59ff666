"""ShareFetch, versions 1 and 2 (KIP-932): records for a member of a share group, and what it says of earlier ones.

- What the member says is taken over first; the answer waits for that and for records, or for `max_wait_ms`.
- Whole batches are handed out until `max_records` are reached; with acquire mode 1 exactly so many (KIP-1206).
- The bytes may hold records that others have: the member reads those that the answer names as acquired.
- A partition whose state is still being read has nothing to hand out yet.
v2 acquire modes (KIP-1206), renewing (KIP-1222): with it nothing is fetched
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from appliance.base.errors import ErrorCode
from appliance.partition.fetch_plan import ByteBudget
from appliance.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED
from appliance.server.context import Broker
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.share_calls import (
    LOADING,
    Led,
    Sayings,
    add_hint,
    add_row,
    may_read,
    partitions_of,
    refusal,
    said_in,
    session_for,
)
from appliance.server.handlers.share_read import ShareRead, read_batches, start_reading
from appliance.server.requests import Pending, Request
from appliance.share_groups.runs import Acquired
from appliance.share_groups.sessions import FINAL_EPOCH, FIRST_EPOCH, Place, ShareSession
from appliance.wire.api import ApiKey
from appliance.wire.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
ROUNDS_MAX = 8
"""How often one request looks at all partitions again because what it read was for nobody."""


def share_fetch_handlers() -> dict[int, HandlerEntry]:
    """By API key."""
    return {ApiKey.SHARE_FETCH: HandlerEntry(handle)}


def handle(broker: Broker, request: Request) -> ShareFetchResponse | Pending:
    body = cast(ShareFetchRequest, request.body)
    wrong = refusal(body) or _refusal(body)
    if wrong is not None:
        return ShareFetchResponse(error_code=wrong[0], error_message=wrong[1])
    session = session_for(broker, request, may_open=True)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    if body.share_session_epoch != FINAL_EPOCH:
        session.update(
            [(topic.topic_id, one.partition_index) for topic in body.topics for one in topic.partitions],
            [(topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions],
        )
    operation = ShareFetchOperation(broker, request, session)
    operation.start()
    return operation.pending


def _refusal(body: ShareFetchRequest) -> tuple[ErrorCode, str] | None:
    says_something = any(True for _ in said_in(body))
    if body.share_session_epoch == FIRST_EPOCH and says_something:
        return ErrorCode.INVALID_REQUEST, "The first request of a share session cannot acknowledge."
    if body.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        return ErrorCode.INVALID_REQUEST, f"There is no acquire mode {body.share_acquire_mode}."
    if body.is_renew_ack and (body.max_bytes or body.min_bytes or body.max_records or body.max_wait_ms):
        return ErrorCode.INVALID_REQUEST, "A request that renews acknowledgements cannot fetch."
    return None


class ShareFetchOperation:
    """One request: take over what is said, hand out what there is, and if there is nothing, wait."""

    def __init__(self, broker: Broker, request: Request, session: ShareSession) -> None:
        body = cast(ShareFetchRequest, request.body)
        self.broker = broker
        self.request = request
        self.pending = request.pending()
        self._body = body
        self._session = session
        self._shares = partitions_of(broker)
        self._group_id = body.group_id or ""
        self._member_id = body.member_id or ""
        isolation = self._shares.entries(self._group_id).get("share.isolation.level", "read_uncommitted")
        self._isolation_level = READ_COMMITTED if isolation.lower() == "read_committed" else READ_UNCOMMITTED
        self._sayings = Sayings(broker, request, self._said)
        self._rows: dict[Place, PartitionData] = {}
        self._fetches = body.share_session_epoch != FINAL_EPOCH and not body.is_renew_ack and body.max_bytes > 0
        self._is_done = not self._fetches
        """Whether the answer waits for records no longer."""
        self._is_closed = False
        self._watched: list[dict[Any, None]] = []
        self._look_posted = False
        self._reading = 0
        self._cancel_timer: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._sayings.begin()
        if self._body.share_session_epoch == FINAL_EPOCH:
            self._shares.end_session(self._session)
        if self.pending.answered:
            return
        self.pending.on_close(self._given_up)
        if not self._is_done:
            self._look()
            if not self._is_done:
                timer = self.broker.background.schedule(max(0, self._body.max_wait_ms), self._timed_out)
                self._cancel_timer = timer.cancel

    # Waiting

    def woken(self, partition: object) -> None:
        """Something may be there now: look when all others have been woken in this turn, too."""
        if not self._look_posted and not self._is_done:
            self._look_posted = True
            self.broker.background.post(self._look)

    def _timed_out(self) -> None:
        if self._reading:
            # What is being read is handed out yet.
            self._body.min_bytes = 0
            self._body.max_wait_ms = 0
            return
        self._look(is_last=True)
        self._finish()

    def _given_up(self) -> None:
        """The connection has ended."""
        self._is_closed = self._is_done = True
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._cancel_timer()
        for waiters in self._watched:
            waiters.pop(self, None)
        self._watched = []

    def _watch(self, led: Led) -> None:
        for waiters in (led.waiters, led.hosted.waiters):
            if self not in waiters:
                waiters[self] = None
                self._watched.append(waiters)

    # Reading

    def _look(self, *, is_last: bool = False) -> None:
        """Hand out what there is."""
        self._look_posted = False
        if self._is_done or self._reading:
            return
        for _ in range(ROUNDS_MAX):
            reads = self._read_all()
            if self._waits_for_disk():
                return
            if not reads:
                break
            if sum(read.size for read in reads) < self._body.min_bytes and not is_last:
                break
            if self._hand_out(reads):
                break
        if any(row.acquired_records or row.error_code for row in self._rows.values()):
            self._finish()

    def _waits_for_disk(self) -> bool:
        return self._reading > 0

    def _read_all(self) -> list[ShareRead]:
        budget = ByteBudget(self._body.max_bytes)
        reads: list[ShareRead] = []
        slow: list[ShareRead] = []
        for place in list(self._session.partitions):
            led = self._ready(place)
            if led is None:
                continue
            self._watch(led)
            led.machine.limits = led.limits
            if led.is_reading or not led.machine.can_acquire:
                continue
            read = start_reading(self.broker, led, place, budget, self._isolation_level)
            if read.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                led.fit_to_log()
                led.pump()
                read = start_reading(self.broker, led, place, budget, self._isolation_level)
            if read.error is not ErrorCode.NONE:
                self._fail(place, read.error)
            elif read.is_slow:
                slow.append(read)
            elif read.size:
                reads.append(read)
        if slow:
            self._read_slowly(slow)
        return reads

    def _ready(self, place: Place) -> Led | None:
        """The partition, if there may be something of it to be handed out."""
        refused = may_read(self.broker, self.request.access, place[0])
        led: Led | ErrorCode = self._shares.get(self._group_id, *place) if refused is None else refused
        if isinstance(led, ErrorCode):
            if led is not LOADING:
                self._fail(place, led)
            return None
        if led.machine is None:
            self._watch(led)
            return None
        return led

    def _fail(self, place: Place, error: ErrorCode) -> None:
        self._row(place).error_code = error

    def _read_slowly(self, slow: list[ShareRead]) -> None:
        """Let helper threads read what is not at hand; nobody else hands these partitions out meanwhile."""
        for read in slow:
            self._reading += 1
            read.led.is_reading = True
            threads = self.broker.remote_threads if read.is_remote else self.broker.background
            threads.run(read.work(self.broker), partial(self._slow_came, read))

    def _slow_came(self, read: ShareRead, result: Any) -> None:
        self._reading -= 1
        read.led.is_reading = False
        read.came(self.broker, result)
        if not self._is_closed and read.error is not ErrorCode.NONE:
            self._fail(read.place, read.error)
        elif not self._is_closed and not read.led.ended and read.size:
            self._hand_out([read])
        read.led.wake()
        if self._reading or self._is_closed:
            return
        if self._body.max_wait_ms <= 0 or any(row.acquired_records or row.error_code for row in self._rows.values()):
            self._finish()
        else:
            self._look()

    # Handing out

    def _hand_out(self, reads: list[ShareRead]) -> bool:
        """Whether the member got anything."""
        body = self._body
        given = sum(_count(row.acquired_records) for row in self._rows.values())
        for read in reads:
            left = body.max_records - given
            if left <= 0:
                break
            machine = read.led.machine
            if machine is None:
                continue
            batches = read_batches(read)
            acquired: list[Acquired] = machine.acquire(
                self._member_id,
                read.offset,
                [each.offsets for each in batches],
                self._shares.now_ms(),
                max_records=left,
                batch_size=body.batch_size,
                exactly=body.share_acquire_mode == RECORD_LIMIT,
            )
            read.led.pump()
            if acquired:
                read.led.arm()
                row = self._row(read.place)
                row.acquired_records = [
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ]
                row.records = read.bytes_of(batches, acquired[0].first_offset, acquired[-1].last_offset)
                given += _count(row.acquired_records)
                self._session.served(read.place)
        return given > 0

    def _row(self, place: Place) -> PartitionData:
        row = self._rows.get(place)
        if row is None:
            row = self._rows[place] = PartitionData(partition_index=place[1], records=b"")
        return row

    # Answering

    def _said(self) -> None:
        if self._is_done and not self._is_closed:
            self._answer()

    def _finish(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._stop_waiting()
        if not self._sayings.is_open:
            self._answer()

    def _answer(self) -> None:
        for place, error in self._sayings.results.items():
            self._row(place).acknowledge_error_code = error
        limits = self._shares.limits_of(self._group_id)
        response = ShareFetchResponse(acquisition_lock_timeout_ms=limits.lock_duration_ms)
        for place, row in self._rows.items():
            add_hint(self.broker, self.request, response, row, place, (LeaderIdAndEpoch, NodeEndpoint))
            add_row(response.responses, ShareFetchableTopicResponse, place[0], row)
        self.pending.answer(response)


def _count(acquired: list[AcquiredRecords]) -> int:
    return sum(each.last_offset - each.first_offset + 1 for each in acquired)
