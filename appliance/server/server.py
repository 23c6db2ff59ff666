"""A Kafka server on an event loop: its connections and its tick.

After all sockets that were ready comes the tick. Its hooks write what was staged to the logs and wake those who wait
for it; only then are answers built and sent. The same class serves brokers and controllers, with other handlers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from appliance.base.clock import Clock, SystemClock
from appliance.metrics.latency_buckets import LatencyBuckets
from appliance.quotas.connections import ConnectionLimits
from appliance.server.admission import Admission
from appliance.server.authentication import SaslGate
from appliance.server.background import LoopBackground
from appliance.server.connection import Connection
from appliance.server.dispatcher import Dispatcher, HandlerEntry
from appliance.server.limits import Limits
from appliance.server.listener import DEFAULT_LISTENER, Listener, ListenerProfile
from appliance.server.tls_connection import TlsConnection

if TYPE_CHECKING:
    from appliance.server.access import AccessControl

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_MS = 10_000
"""How often connections are looked at for idleness and large empty buffers."""


class Server:
    """Listeners, connections and the tick. All methods are called on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handlers: Mapping[int, HandlerEntry],
        advertised: Mapping[int, tuple[int, int]],
        limits: Limits,
        background: LoopBackground,
        *,
        context: Any = None,
        clock: Clock | None = None,
        connection_limits: ConnectionLimits | None = None,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.background = background
        self.clock = clock or SystemClock()
        self.dispatcher = Dispatcher(context, handlers, advertised)
        self.connections: dict[Connection, None] = {}
        self.touched: list[Connection] = []
        """Connections with something to do at the end of the tick."""
        self.starved: deque[Connection] = deque()
        """Connections with a frame that finds no memory, first come first served."""
        self.request_bytes = 0
        """Memory of receive buffers beyond their first size: there, or promised to frames that have begun."""
        self.tick_scheduled = False
        self.now_ms = self.clock.now_ms()
        """Wall-clock time when this tick began."""
        self.ticks = 0
        self.tick_lengths = LatencyBuckets()
        """From a tick's beginning to its last answer: what whoever comes meanwhile has to wait."""
        self._tick_began = 0.0
        self.fast_requests = 0
        """Produce requests that took the short way past the dispatcher."""
        self.fast_fetches = 0
        self.connections_accepted = 0
        self.admission = Admission(self, connection_limits or ConnectionLimits())
        """Who is let in when."""
        self.closed_for_cause = 0
        self.bytes_in = 0
        """From connections that have ended; the others count for themselves."""
        self.bytes_out = 0
        self.after_write: list[Callable[[], None]] = []
        """Called once, after the hooks of the next tick: what was staged since is written."""
        self.holding = False
        """While true, ticks go on but no answer leaves (a broker without a lease)."""
        self.access_control: AccessControl | None = None
        """Set where there is an authorizer."""
        self._tick_hooks: list[Callable[[], None]] = []
        self._listeners: list[Listener] = []
        self._closed = False
        self._feeding = False
        self._sweep_timer = background.schedule(_SWEEP_INTERVAL_MS, self._sweep)

    def listen(self, host: str, port: int, profile: ListenerProfile = DEFAULT_LISTENER) -> int:
        """Begin to accept; returns the port (a free one for 0).

        Raises:
            UserError: the address cannot be had (exit code 3).
        """
        listener = Listener(self, host, port, profile)
        self._listeners.append(listener)
        return listener.port

    def on_tick(self, hook: Callable[[], None]) -> None:
        """Call `hook` in every tick, after all ready sockets were read and before answers are built."""
        self._tick_hooks.append(hook)

    def begin_tick(self) -> None:
        """Make sure that a tick comes after what is ready now. Whatever may lead to an answer calls this."""
        if not self.tick_scheduled and not self._closed:
            self.tick_scheduled = True
            self.now_ms = self.clock.now_ms()
            self._tick_began = perf_counter()
            self.loop.call_soon(self._tick)

    def drop_held(self, reason: str) -> None:
        """End every connection whose answers were held back: their clients must not believe them any more."""
        touched, self.touched = self.touched, []
        for connection in touched:
            connection.close(reason)

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._closed = True
        self._sweep_timer.cancel()
        self.stop_listening()
        self.admission.close()
        for connection in list(self.connections):
            connection.close()

    def stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def let_in(self, sock: socket.socket, host: str, port: int, profile: ListenerProfile = DEFAULT_LISTENER) -> bool:
        """Take over a connection that a listener has accepted; false if it ended meanwhile."""
        self.now_ms = self.clock.now_ms()
        peer = f"{host}:{port}"
        if profile.tls is not None:
            try:
                connection: Connection = TlsConnection(self, sock, peer, host, profile)
            except (OSError, ValueError) as error:
                _log.info("connection from %s ended before its TLS handshake: %s", peer, error)
                sock.close()
                return False
        else:
            connection = Connection(self, sock, peer, host)
            connection.listener = profile
        if profile.sasl is not None:
            connection.dispatcher = SaslGate(profile.sasl, self.dispatcher)
        self.connections_accepted += 1
        self.connections[connection] = None
        return True

    def reserve(self, size: int) -> bool:
        """Whether so much more memory may be used for requests. One frame at a time is admitted in any case."""
        limit = self.limits.queued_request_bytes
        if 0 <= limit < self.request_bytes + size and self.request_bytes:
            for connection in self.connections:
                connection.shrink_if_idle()
            if limit < self.request_bytes + size and self.request_bytes:
                return False
        self.request_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """So much memory for requests is free again."""
        self.request_bytes -= size
        if size and self.starved and not self._feeding:
            self._feeding = True
            self.loop.call_soon(self._feed)

    def _feed(self) -> None:
        self._feeding = False
        while self.starved and self.starved[0].fed():
            self.starved.popleft()

    def connection_closed(self, connection: Connection) -> None:
        del self.connections[connection]
        self.bytes_in += connection.bytes_in
        self.bytes_out += connection.bytes_out
        self.admission.left(connection)

    def _tick(self) -> None:
        self.tick_scheduled = False
        self.ticks += 1
        began = self._tick_began
        for hook in self._tick_hooks:
            try:
                hook()
            except Exception:
                _log.exception("a tick hook failed")
        if self.after_write:
            self._call_after_write()
        touched, self.touched = self.touched, []
        if self.holding:
            touched = self._held_back(touched)
        for connection in touched:
            try:
                connection.end_tick()
            except Exception:
                _log.exception("answers to %s could not be sent", connection.peer)
                connection.close("answers could not be sent")
        if self.touched and (not self.holding or any(one.without_lease for one in self.touched)):
            self.begin_tick()
        self.tick_lengths.record(int((perf_counter() - began) * 1e6))

    def _held_back(self, touched: list[Connection]) -> list[Connection]:
        """Keep the answers of these connections, but for those that need no lease, which are returned."""
        free: list[Connection] = []
        for connection in touched:
            if connection.without_lease:
                free.append(connection)
            else:
                connection.build_late_answers()
                self.touched.append(connection)
        return free

    def _call_after_write(self) -> None:
        callbacks, self.after_write = self.after_write, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                _log.exception("an answer after a write failed")

    def _sweep(self) -> None:
        self._sweep_timer = self.background.schedule(_SWEEP_INTERVAL_MS, self._sweep)
        idle_since_ms = self.clock.now_ms() - self.limits.connections_max_idle_ms
        for connection in list(self.connections):
            if connection.last_active_ms < idle_since_ms and not connection.waits:
                connection.close()
            else:
                connection.shrink_if_idle()
