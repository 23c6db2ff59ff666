"""The doors of a server: who is let in at once, who waits there, who is turned away (KIP-402, KIP-612).

`ConnectionQuotas` decides. A listener whose next connection has to wait holds it, accepts no more and is called again
when its time has come, or room; nothing waits on the loop. What an address has too many of in a while is kept without
being read, and closed when its time is over, so that a client which tries again at once gains nothing.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from appliance.base.background import Timer
from appliance.quotas.connections import ConnectionLimits, ConnectionQuotas, plain_address

if TYPE_CHECKING:
    from appliance.server.connection import Connection
    from appliance.server.listener import Listener
    from appliance.server.server import Server

_log = logging.getLogger(__name__)

THROTTLED_MAX = 1_000
"""Connections of addresses above their rate that are kept until their time is over; beyond it the oldest go early."""


class _Held:
    """A connection that waits at the door."""

    __slots__ = ("address", "due_ms", "port", "since_ms", "socket")

    def __init__(self, sock: socket.socket, address: str, port: int, since_ms: int, due_ms: int) -> None:
        self.socket = sock
        self.address = address
        self.port = port
        self.since_ms = since_ms
        self.due_ms = due_ms


class Admission:
    """On the loop's thread."""

    def __init__(self, server: Server, limits: ConnectionLimits) -> None:
        self._server = server
        self.quotas = ConnectionQuotas(limits)
        self.refused = 0
        """Above the number that their address may have."""
        self.throttled = 0
        """Above the rate of their address."""
        self.delayed = 0
        """Those that had to wait at the door."""
        self.delayed_ms = 0
        """How long, in all."""
        self._held: dict[Listener, _Held] = {}
        self._throttled: dict[socket.socket, Timer] = {}
        self._looking = False

    @property
    def waiting(self) -> int:
        """Connections that are neither let in nor turned away yet."""
        return len(self._held) + len(self._throttled)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Other limits hold from now on."""
        self.quotas.set_limits(limits)
        self._look_again()

    def came(self, listener: Listener, sock: socket.socket, host: str, port: int) -> None:
        """A listener has accepted a connection."""
        now_ms = self._server.clock.monotonic_ms()
        name, address = listener.profile.name, plain_address(host)
        wait_ms = self.quotas.wait_ms(name, now_ms)
        if not wait_ms and self.quotas.has_room(name):
            self._at_the_door(listener, sock, address, port)
            return
        listener.pause()
        self.delayed += 1
        self._held[listener] = _Held(sock, address, port, now_ms, now_ms + wait_ms)
        if wait_ms:
            self._server.background.schedule(wait_ms, self._look)

    def left(self, connection: Connection) -> None:
        """A connection that was let in has ended."""
        self.quotas.closed(connection.listener.name, connection.host)
        self._look_again()

    def listener_closed(self, listener: Listener) -> None:
        """What waits there is let go."""
        held = self._held.pop(listener, None)
        if held is not None:
            held.socket.close()

    def close(self) -> None:
        for sock, timer in self._throttled.items():
            timer.cancel()
            sock.close()
        self._throttled.clear()

    def _look_again(self) -> None:
        if self._held and not self._looking:
            self._looking = True
            self._server.loop.call_soon(self._look)

    def _look(self) -> None:
        """Let in whose time has come, first come first served, as far as there is room."""
        self._looking = False
        now_ms = self._server.clock.monotonic_ms()
        for listener, held in list(self._held.items()):
            if held.due_ms > now_ms or not self.quotas.has_room(listener.profile.name):
                continue
            del self._held[listener]
            self.delayed_ms += now_ms - held.since_ms
            self._at_the_door(listener, held.socket, held.address, held.port)
            listener.resume()

    def _at_the_door(self, listener: Listener, sock: socket.socket, address: str, port: int) -> None:
        """Its time has come and there is room: let it in, unless its address has too many."""
        name = listener.profile.name
        wait_ms = self.quotas.address_wait_ms(address, self._server.clock.monotonic_ms())
        if wait_ms:
            self._throttle(sock, wait_ms)
            return
        if self.quotas.too_many_of(address):
            self.refused += 1
            _log.info("connection from %s:%d refused: its address has max.connections.per.ip", address, port)
            sock.close()
            return
        if self._server.let_in(sock, address, port, listener.profile):
            self.quotas.opened(name, address)
            if self.quotas.one_must_go:
                self._end_the_idlest()

    def _throttle(self, sock: socket.socket, wait_ms: int) -> None:
        self.throttled += 1
        if len(self._throttled) >= THROTTLED_MAX:
            self._end_throttled(next(iter(self._throttled)))
        self._throttled[sock] = self._server.background.schedule(wait_ms, lambda: self._end_throttled(sock))

    def _end_throttled(self, sock: socket.socket) -> None:
        self._throttled.pop(sock).cancel()
        sock.close()

    def _end_the_idlest(self) -> None:
        """Brokers have taken the last place: whoever on another listener has been silent for longest makes room."""
        protected = self.quotas.limits.protected
        others = [one for one in self._server.connections if one.listener.name != protected]
        if others:
            min(others, key=lambda one: one.last_active_ms).close("a broker needs its place: max.connections")
