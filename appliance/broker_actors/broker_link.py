"""A connection from one broker to another, on the event loop: requests go out, answers come back in their order.

It connects when it is first used. Whatever goes wrong ends the connection and everything that waits on it; the next
call connects anew.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from appliance.base.background import Background, Timer
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.wire.api import api_of
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.frames import FrameReader
from appliance.wire.schema import Request, Struct, WireError

_log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 256 << 20
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)

Done = Callable[[Struct | Exception], None]
"""Gets the response, whose records are views that must be let go before the next call, or what went wrong."""


class _Call:
    __slots__ = ("correlation_id", "done", "response", "timer", "version")

    def __init__(self, correlation_id: int, response: type[Struct], version: int, done: Done) -> None:
        self.correlation_id = correlation_id
        self.response = response
        self.version = version
        self.done = done
        self.timer: Timer | None = None


class BrokerLink:
    """All methods are called on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        address: tuple[str, int],
        client_id: str,
        connect_timeout_ms: int,
    ) -> None:
        self.address = address
        self._loop = loop
        self._background = background
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._socket: socket.socket | None = None
        self._connected = False
        self._writing = False
        self._attempt = 0
        self._connect_timer: Timer | None = None
        self._correlation_id = 0
        self._unsent = bytearray()
        self._calls: deque[_Call] = deque()

    def __repr__(self) -> str:
        return f"link to {self.address[0]}:{self.address[1]}"

    def call(self, request: Request[Any], version: int, timeout_ms: int, done: Done) -> None:
        """Send a request; `done` is called once, later."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        api = api_of(type(request).__wire__.api_key or 0)
        assert api is not None
        call = _Call(self._correlation_id, api.response, version, done)
        call.timer = self._background.schedule(timeout_ms, lambda: self._timed_out(call))
        self._calls.append(call)
        self._unsent += encode_request(request, version, self._correlation_id, self._client_id)
        if self._socket is None:
            self._connect()
        elif self._connected and not self._writing:
            self._send()

    def close(self) -> None:
        """End the connection; nothing that waits is called back."""
        for call in self._calls:
            if call.timer is not None:
                call.timer.cancel()
        self._calls.clear()
        self._end()

    # Connecting

    def _connect(self) -> None:
        host, port = self.address
        self._attempt += 1
        attempt = self._attempt
        self._connect_timer = self._background.schedule(self._connect_timeout_ms, lambda: self._connect_late(attempt))
        family = _numeric_family(host)
        if family is not None:
            self._connect_to(family, (host, port))
            return

        def resolved(found: list[Any] | Exception) -> None:
            if attempt != self._attempt or not self._calls:
                return
            if isinstance(found, Exception) or not found:
                self._lost(f"{host} cannot be resolved: {found}")
            else:
                self._connect_to(found[0][0], found[0][4])

        self._background.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), resolved)

    def _connect_to(self, family: int, address: Any) -> None:
        try:
            made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = made.connect_ex(address)
        except OSError as error:
            self._lost(f"no connection to {self.address}: {error}")
            return
        self._socket = made
        if code not in _IN_PROGRESS:
            self._lost(f"no connection to {self.address}: {os.strerror(code)}")
            return
        self._writing = True
        self._loop.add_writer(made.fileno(), self._on_writable)

    def _connect_late(self, attempt: int) -> None:
        if attempt == self._attempt and not self._connected:
            self._lost(f"no connection to {self.address} within {self._connect_timeout_ms} ms")

    # In and out

    def _on_writable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        if not self._connected:
            code = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._lost(f"no connection to {self.address}: {os.strerror(code)}")
                return
            self._connected = True
            if self._connect_timer is not None:
                self._connect_timer.cancel()
            self._loop.add_reader(connected.fileno(), self._on_readable)
        self._send()

    def _send(self) -> None:
        connected = self._socket
        if connected is None:
            return
        try:
            while self._unsent:
                sent = connected.send(self._unsent)
                del self._unsent[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(f"the connection to {self.address} ended: {error}")
            return
        if self._unsent and not self._writing:
            self._writing = True
            self._loop.add_writer(connected.fileno(), self._on_writable)
        elif not self._unsent and self._writing:
            self._writing = False
            self._loop.remove_writer(connected.fileno())

    def _on_readable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        try:
            with self._reader.free_space() as space:
                count = connected.recv_into(space)
            frames = self._reader.received(count)
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, WireError) as error:
            self._lost(f"the connection to {self.address} ended: {error}")
            return
        if not count:
            self._lost(f"{self.address} ended the connection")
            return
        for frame in frames:
            self._answered(frame)

    def _answered(self, frame: memoryview) -> None:
        if not self._calls:
            self._lost(f"{self.address} answered what was never asked")
            return
        call = self._calls[0]
        try:
            correlation_id, response = decode_response(call.response, frame, call.version)
        except WireError as error:
            self._lost(f"{self.address} sent no readable {call.response.__name__}: {error}")
            return
        if correlation_id != call.correlation_id:
            self._lost(f"{self.address} answered request {correlation_id} instead of {call.correlation_id}")
            return
        self._calls.popleft()
        self._finish(call, response)

    def _finish(self, call: _Call, result: Struct | Exception) -> None:
        if call.timer is not None:
            call.timer.cancel()
        try:
            call.done(result)
        except Exception:
            _log.exception("%r: an answer could not be taken", self)

    # The end

    def _timed_out(self, call: _Call) -> None:
        if call in self._calls:
            self._fail_all(CallTimedOut(f"no answer from {self.address} in time"))

    def _lost(self, reason: str) -> None:
        self._fail_all(ConnectionLost(reason))

    def _fail_all(self, error: Exception) -> None:
        calls, self._calls = self._calls, deque()
        self._end()
        for call in calls:
            self._finish(call, error)

    def _end(self) -> None:
        self._attempt += 1
        if self._connect_timer is not None:
            self._connect_timer.cancel()
            self._connect_timer = None
        connected, self._socket = self._socket, None
        if connected is not None:
            if self._connected:
                self._loop.remove_reader(connected.fileno())
            if self._writing:
                self._loop.remove_writer(connected.fileno())
            connected.close()
        self._connected = self._writing = False
        self._unsent.clear()
        self._reader = FrameReader(MAX_RESPONSE_BYTES)


def _numeric_family(host: str) -> int | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return family
        except OSError:
            continue
    return None
