"""The clients of a broker that tell of themselves, and what each pushed last (KIP-714): pure, time comes in.

As in Kafka:

- A client asks what is wanted of it and gets an id of its own with the answer. It asks again after the interval, or
  when its subscription is not known any more; who comes earlier is THROTTLING_QUOTA_EXCEEDED.
- The first push after that may come at any time, the next ones after the interval; the last one (`terminating`) at any
  time, and after it none.
- Other configs of client metrics make all of this anew: the next push is UNKNOWN_SUBSCRIPTION_ID, and its client asks.

Unlike in Kafka, where a plugin takes pushes, the newest one of each client is kept here until the client was silent for
three intervals. Clients are asked for sums since their start, not since their last push: so the newest is all there is
to know, and one that was lost is no loss.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping

from appliance.base.errors import ErrorCode
from appliance.base.ids import METADATA_TOPIC_ID, ZERO_UUID
from appliance.telemetry.otlp import Pushed
from appliance.telemetry.subscriptions import About, Subscription, Wanted, subscription_of, wanted_of

CLIENTS_MAX = 2_000
"""Clients that a broker remembers; beyond it the one that was silent for longest is forgotten."""
SERIES_KEPT_MAX = 100_000
"""Values of all clients together; beyond it those of who pushed first are forgotten."""
SILENT_INTERVALS, SILENT_MIN_MS = 3, 60_000
"""After so many intervals, and at least that time, a client is forgotten."""
CODECS = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: what clients are offered, in Kafka's order. Uncompressed is taken, too."""
_ASKS_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client may ask at once what is wanted now."""
_NOTHING = Pushed((), (), 0)


class Client:
    """One instance of a client."""

    __slots__ = (
        "about",
        "generation",
        "heard_ms",
        "instance_id",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "pushed",
        "pushes",
        "terminating",
        "wanted",
    )

    def __init__(self, instance_id: uuid.UUID, about: About, now_ms: int) -> None:
        self.instance_id = instance_id
        self.about = about
        self.wanted = Wanted(0, 0, ())
        self.generation = -1
        self.heard_ms = now_ms
        self.last_get_ms = self.last_push_ms = -(1 << 62)
        self.last_error = ErrorCode.NONE
        self.terminating = False
        self.pushed = _NOTHING
        self.pushes = 0

    def is_gone(self, now_ms: int) -> bool:
        return now_ms - self.heard_ms > max(SILENT_MIN_MS, SILENT_INTERVALS * self.wanted.interval_ms)


class ClientTelemetry:
    """All clients of one broker."""

    def __init__(self, max_bytes: int, new_id: Callable[[], uuid.UUID]) -> None:
        self.max_bytes = max_bytes
        """`telemetry.max.bytes`."""
        self.throttled = 0
        self.unknown_subscriptions = 0
        self.rejected = 0
        """Pushes that could not be read."""
        self.taken = 0
        """Pushes that were kept."""
        self._new_id = new_id
        self._clients: dict[uuid.UUID, Client] = {}
        """Who was heard last stands last."""
        self._subscriptions: dict[str, Subscription] = {}
        self._generation = 0
        self._series = 0

    def subscriptions_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """The configs of client metrics, by the resource's name."""
        found = {name: subscription_of(name, entries) for name, entries in sorted(configs.items())}
        self._subscriptions = {name: each for name, each in found.items() if each is not None}
        self._generation += 1

    def ask(self, instance_id: uuid.UUID, about: About, now_ms: int) -> Client | ErrorCode:
        """GetTelemetrySubscriptions: the client with what is wanted of it."""
        client = self._client(self._new_id() if instance_id == ZERO_UUID else instance_id, about, now_ms)
        is_early = now_ms - max(client.last_get_ms, client.last_push_ms) < client.wanted.interval_ms
        if is_early and client.last_error not in _ASKS_AGAIN:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        client.last_get_ms, client.last_error = now_ms, ErrorCode.NONE
        return client

    def may_push(
        self,
        instance_id: uuid.UUID,
        about: About,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        codec: int,
        size: int,
    ) -> Client | ErrorCode:
        """PushTelemetry: whose metrics these are, if they may come."""
        if instance_id in (ZERO_UUID, METADATA_TOPIC_ID):
            return ErrorCode.INVALID_REQUEST
        client = self._client(instance_id, about, now_ms)
        client.last_error = self._refusal(client, now_ms, subscription_id, terminating, codec, size)
        return client.last_error or client

    def _refusal(
        self, client: Client, now_ms: int, subscription_id: int, terminating: bool, codec: int, size: int
    ) -> ErrorCode:
        was_last, client.terminating = client.terminating, terminating
        if was_last:
            return ErrorCode.INVALID_REQUEST
        if client.last_get_ms > client.last_push_ms or now_ms - client.last_push_ms >= client.wanted.interval_ms:
            client.last_push_ms = now_ms
        elif not terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != client.wanted.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if codec and codec not in CODECS:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if size > self.max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def take(self, client: Client, pushed: Pushed) -> None:
        """Keep what a client pushed, in place of what it had pushed before."""
        self.taken += 1
        client.pushes += 1
        if self._clients.get(client.instance_id) is not client:
            return
        self._set(client, pushed)
        for other in self._clients.values():
            if self._series <= SERIES_KEPT_MAX:
                break
            if other is not client:
                self._set(other, _NOTHING)

    def clients(self, now_ms: int) -> list[Client]:
        """All that were heard lately, who was heard last comes last. Changes nothing: any thread may ask."""
        return [client for client in list(self._clients.values()) if not client.is_gone(now_ms)]

    def _client(self, instance_id: uuid.UUID, about: About, now_ms: int) -> Client:
        client = self._clients.pop(instance_id, None)
        if client is None or client.is_gone(now_ms):
            self._forget(client)
            client = Client(instance_id, about, now_ms)
            self._drop_the_silent(now_ms)
        self._clients[instance_id] = client
        client.heard_ms = now_ms
        if client.generation != self._generation:
            # As if it had never asked for anything.
            client.generation = self._generation
            client.wanted = wanted_of(self._subscriptions, instance_id, client.about)
            client.last_get_ms = client.last_push_ms = -(1 << 62)
            client.terminating = False
        return client

    def _drop_the_silent(self, now_ms: int) -> None:
        for instance_id, client in self._first():
            if len(self._clients) < CLIENTS_MAX and not client.is_gone(now_ms):
                break
            del self._clients[instance_id]
            self._forget(client)

    def _first(self) -> Iterator[tuple[uuid.UUID, Client]]:
        while self._clients:
            yield next(iter(self._clients.items()))

    def _forget(self, client: Client | None) -> None:
        if client is not None:
            self._set(client, _NOTHING)

    def _set(self, client: Client, pushed: Pushed) -> None:
        self._series += len(pushed.series) - len(client.pushed.series)
        client.pushed = pushed
