"""Limits for clients at the door of a broker: bytes in and out, time of handling, changes of topics (KIP-13, 124, 599).

- While nobody has a limit the dispatcher has its own table of short ways, and nothing here runs. Once limits are set,
  each request passes by here: one look into a table for clients that have none.
- Who is over a limit is answered first, with the time that it has to wait, and its connection is then left alone for
  that time (KIP-219): behind the answer stands a placeholder that blocks.
- Bytes in count when they come. Bytes out count when they leave, so a fetch that went over its limit has brought its
  records. The time of handling counts for the requests after it.
- What brokers ask of each other is never limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from appliance.base.background import Timer
from appliance.base.clock import Clock
from appliance.base.config import BrokerConfig
from appliance.controller.image import MetadataImage
from appliance.quotas.rates import Rate, TokenBucket
from appliance.quotas.table import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Entity,
    find_limit,
)
from appliance.server.requests import OutputItem, Pending, Request
from appliance.wire.api import ApiKey

if TYPE_CHECKING:
    from appliance.server.connection import Connection
    from appliance.server.dispatcher import Dispatcher, RawHandler

CLIENTS_KEPT_MAX = 10_000
"""Clients whose limits are at hand, and rates that are kept; idle ones go."""
_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
_FETCH_FLEXIBLE_SINCE, _FETCH_TELLS_SINCE = 12, 1
_ADD_PARTITIONS, _BROKERS_SINCE = int(ApiKey.ADD_PARTITIONS_TO_TXN), 4
"""From this version on AddPartitionsToTxn is for brokers only."""
_CLIENT_ID_AT = 12
_FIRST_OWN_API_KEY = 20_000
_OF_BROKERS = frozenset({int(ApiKey.WRITE_TXN_MARKERS)})
_NANOSECONDS_PER_PERCENT = 10_000_000


class Schedule(Protocol):
    """Timers on the loop."""

    def schedule(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...


class ClientLimits:
    """The limits of one user's client; None where there is none."""

    __slots__ = ("fetch", "mutations", "produce", "request")

    def __init__(
        self, produce: Rate | None, fetch: Rate | None, request: Rate | None, mutations: TokenBucket | None
    ) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.mutations = mutations


class ClientQuotas:
    """All limits of this broker."""

    def __init__(self, config: BrokerConfig, clock: Clock, timers: Schedule) -> None:
        self._clock = clock
        self._timers = timers
        self._windows = config.get("quota.window.num")
        self._window_ms = config.get("quota.window.size.seconds") * 1_000
        self._mutation_windows = config.get("controller.quota.window.num")
        self._mutation_window_ms = config.get("controller.quota.window.size.seconds") * 1_000
        self._seen: Mapping[Entity, Mapping[str, float]] = {}
        self._quotas: Mapping[Entity, Mapping[str, float]] = {}
        self._clients: dict[tuple[str, bytes], ClientLimits | None] = {}
        self._rates: dict[tuple[str, tuple[str, str, str]], Rate] = {}
        self._buckets: dict[tuple[str, str, str], TokenBucket] = {}
        self._dispatcher: Dispatcher | None = None
        self._short_ways: dict[int, RawHandler] = {}
        self._now: tuple[Connection, int, int] | None = None
        """The request that is being handled: its connection, API key, and the wait in ms that it is told."""

    def guard(self, dispatcher: Dispatcher) -> None:
        """Stand at the door of this dispatcher whenever anybody has a limit."""
        self._dispatcher = dispatcher
        self._short_ways = dispatcher.raw_handlers

    def image_changed(self, image: MetadataImage) -> None:
        """Other limits may be set."""
        if image.client_quotas is self._seen:
            return
        self._seen = image.client_quotas
        # Those of addresses are asked at the door.
        self._quotas = {whom: values for whom, values in self._seen.items() if whom[0][0] != IP}
        self._clients.clear()
        dispatcher = self._dispatcher
        if dispatcher is None:
            return
        if self._quotas:
            dispatcher.raw_handlers = {key: self._guarded(key) for key in dispatcher.handlers}
            dispatcher.admitted = self._admitted
        else:
            dispatcher.raw_handlers, dispatcher.admitted = self._short_ways, None
            self._rates.clear()
            self._buckets.clear()

    # Requests that pass by

    def _guarded(self, api_key: int) -> RawHandler:
        short_way = self._short_ways.get(api_key)
        if api_key >= _FIRST_OWN_API_KEY or api_key in _OF_BROKERS:
            return short_way or _no_short_way

        def handle(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
            limits = self._limits_at(connection, position, frame_end)
            if limits is None or connection.without_lease or (api_key == _ADD_PARTITIONS and version >= _BROKERS_SINCE):
                return short_way is not None and short_way(connection, position, frame_end, version, correlation_id)
            return self._handle(api_key, short_way, limits, connection, position, frame_end, version, correlation_id)

        return handle

    def _handle(
        self,
        api_key: int,
        short_way: RawHandler | None,
        limits: ClientLimits,
        connection: Connection,
        position: int,
        frame_end: int,
        version: int,
        correlation_id: int,
    ) -> bool:
        dispatcher = self._dispatcher
        if dispatcher is None:
            return False
        began = perf_counter_ns()
        now_ms = self._clock.monotonic_ms()
        wait_ms = limits.request.wait_ms(now_ms) if limits.request is not None else 0
        if api_key == _PRODUCE and limits.produce is not None:
            limits.produce.record(frame_end - position - 4, now_ms)
            wait_ms = max(wait_ms, limits.produce.wait_ms(now_ms))
        if wait_ms or short_way is None or not short_way(connection, position, frame_end, version, correlation_id):
            self._now = (connection, api_key, wait_ms)
            try:
                answer = dispatcher.dispatch(connection, connection.view[position + 4 : frame_end])
            finally:
                wait_ms, self._now = self._now[2], None
            if answer is not None:
                connection.queue(answer)
        elif api_key == _FETCH and limits.fetch is not None:
            wait_ms = self._short_fetch(limits.fetch, connection, version, now_ms)
        if limits.request is not None:
            limits.request.record((perf_counter_ns() - began) / _NANOSECONDS_PER_PERCENT, now_ms)
        if wait_ms:
            self.mute(connection, wait_ms)
        return True

    def _short_fetch(self, rate: Rate, connection: Connection, version: int, now_ms: int) -> int:
        """The last answer is that of a fetch that took the short way."""
        answer = connection.answers[-1]
        items: list[OutputItem] | None = [answer] if isinstance(answer, bytes) else None
        if isinstance(answer, Pending):
            items = answer.items
        if items is None:
            return 0
        wait_ms = _counted(rate, items, now_ms)
        if wait_ms:
            _tell_fetch(items, version, wait_ms)
            first = items[0]
            if isinstance(answer, bytes) and isinstance(first, bytes):
                connection.answers[-1] = first
        return wait_ms

    def _admitted(self, request: Request) -> None:
        """The dispatcher has read a request that passes by here."""
        if self._now is None:
            return
        connection, api_key, wait_ms = self._now
        request.throttle_time_ms = wait_ms
        if api_key == _FETCH:
            limits = self._limits_of(connection, (request.client_id or "").encode())
            rate = limits.fetch if limits is not None else None
            if rate is not None:
                request.meter = lambda pending, items: self._fetched(rate, wait_ms, pending, items)

    def _fetched(self, rate: Rate, wait_ms: int, pending: Pending, items: list[OutputItem]) -> None:
        """A fetch is about to be answered."""
        wait_ms = max(wait_ms, _counted(rate, items, self._clock.monotonic_ms()))
        if wait_ms:
            _tell_fetch(items, pending.api_version, wait_ms)
            self._mute_behind(pending.connection, wait_ms)

    def _mute_behind(self, connection: Connection, wait_ms: int) -> None:
        """Mute once the answer that is being given has its place."""
        if self._now is not None and self._now[0] is connection:
            self._now = (connection, self._now[1], max(wait_ms, self._now[2]))
        else:
            self.mute(connection, wait_ms)

    def mute(self, connection: Connection, wait_ms: int) -> None:
        """Handle nothing more of this connection for a while; what was answered leaves."""
        place = Pending(connection, 0, 0)
        connection.queue(place)
        timer = self._timers.schedule(wait_ms, lambda: place.answer_items([]))
        place.on_close(timer.cancel)

    # Changes of topics

    def mutations_of(self, request: Request) -> Mutations | None:
        """How many changes this client may ask for; None: as many as it likes."""
        limits = self._limits_of(request.connection, (request.client_id or "").encode()) if self._quotas else None
        if limits is None or limits.mutations is None:
            return None
        return Mutations(self, limits.mutations, self._clock.monotonic_ms())

    # Who has which limits

    def _limits_at(self, connection: Connection, position: int, frame_end: int) -> ClientLimits | None:
        at = position + _CLIENT_ID_AT
        buffer = connection.buffer
        length = int.from_bytes(buffer[at : at + 2], "big", signed=True)
        if length <= 0 or at + 2 + length > frame_end:
            return self._limits_of(connection, b"")
        return self._limits_of(connection, bytes(buffer[at + 2 : at + 2 + length]))

    def _limits_of(self, connection: Connection, client_id: bytes) -> ClientLimits | None:
        key = (connection.principal.name, client_id)
        if key in self._clients:
            return self._clients[key]
        if len(self._clients) >= CLIENTS_KEPT_MAX:
            self._clients.clear()
        limits = self._clients[key] = self._look_up(key[0], client_id.decode(errors="replace"))
        return limits

    def _look_up(self, user: str, client_id: str) -> ClientLimits | None:
        limits = ClientLimits(
            self._rate(PRODUCER_BYTE_RATE, user, client_id),
            self._rate(CONSUMER_BYTE_RATE, user, client_id),
            self._rate(REQUEST_PERCENTAGE, user, client_id),
            self._bucket(user, client_id),
        )
        has_any = limits.produce or limits.fetch or limits.request or limits.mutations
        return limits if has_any is not None else None

    def _rate(self, key: str, user: str, client_id: str) -> Rate | None:
        found = find_limit(self._quotas, key, user, client_id)
        if found is None:
            return None
        rate = self._rates.get((key, found.shared_by))
        if rate is None:
            self._drop_idle()
            rate = self._rates[key, found.shared_by] = Rate(found.value, self._windows, self._window_ms)
        rate.limit = found.value
        return rate

    def _bucket(self, user: str, client_id: str) -> TokenBucket | None:
        found = find_limit(self._quotas, CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return None
        bucket = self._buckets.get(found.shared_by)
        if bucket is None or bucket.rate != found.value:
            if len(self._buckets) >= CLIENTS_KEPT_MAX:
                self._buckets.clear()
            now_ms = self._clock.monotonic_ms()
            bucket = TokenBucket(found.value, self._mutation_windows, self._mutation_window_ms, now_ms)
            self._buckets[found.shared_by] = bucket
        return bucket

    def _drop_idle(self) -> None:
        if len(self._rates) < CLIENTS_KEPT_MAX:
            return
        now_ms = self._clock.monotonic_ms()
        self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle(now_ms)}
        self._clients.clear()


class Mutations:
    """What one request for changes of topics may do."""

    def __init__(self, quotas: ClientQuotas, bucket: TokenBucket, now_ms: int) -> None:
        self._quotas = quotas
        self._bucket = bucket
        self._now_ms = now_ms

    def allows(self, partitions: int, *, strictly: bool) -> bool:
        """Take tokens for a change. `strictly`: only while the bucket is not empty."""
        if strictly and self._bucket.wait_ms(self._now_ms):
            return False
        self._bucket.take(partitions, self._now_ms)
        return True

    def tell(self, request: Request) -> None:
        """Let the answer say how long to wait, and mute the connection behind it."""
        wait_ms = self._bucket.wait_ms(self._now_ms)
        if wait_ms > request.throttle_time_ms:
            request.throttle_time_ms = wait_ms
            request.meter = lambda pending, items: self._quotas._mute_behind(pending.connection, wait_ms)


def _counted(rate: Rate, items: list[OutputItem], now_ms: int) -> int:
    rate.record(sum(map(len, items)), now_ms)
    return rate.wait_ms(now_ms)


def _tell_fetch(items: list[OutputItem], version: int, wait_ms: int) -> None:
    """Write the wait into a Fetch response that is encoded already: it is the first field of its body."""
    first = items[0]
    if not isinstance(first, bytes) or version < _FETCH_TELLS_SINCE:
        return
    at = 9 if version >= _FETCH_FLEXIBLE_SINCE else 8
    items[0] = first[:at] + wait_ms.to_bytes(4, "big") + first[at + 4 :]


def _no_short_way(connection: Connection, position: int, frame_end: int, version: int, correlation_id: int) -> bool:
    return False
