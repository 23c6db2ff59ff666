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
import ssl
import struct
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from appliance.base.background import Background, Timer
from appliance.client.connection import CallTimedOut, ConnectionLost
from appliance.client.security import PLAIN, ClientSecurity, NotAuthenticated, authenticate
from appliance.wire.api import api_of
from appliance.wire.codec import decode_response, encode_request
from appliance.wire.frames import FrameReader
from appliance.wire.schema import Request, Struct, WireError

_log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 256 << 20
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 8
"""Behind size, API key and version."""
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
        security: ClientSecurity = PLAIN,
    ) -> None:
        self.address = address
        self._security = security
        self._loop = loop
        self._background = background
        self.client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._socket: socket.socket | None = None
        self._connected = False
        self._open = False
        """Connected, and whatever comes before the first request is done."""
        self._writing = False
        self._attempt = 0
        self._connect_timer: Timer | None = None
        self._correlation_id = 0
        self._unsent = bytearray()
        self._first = bytearray()
        """What goes before all requests: a token of SASL."""
        self._steps: Generator[tuple[Struct, int], Struct, None] | None = None
        self._asked: tuple[type[Struct], int] = (Struct, 0)
        """Response and version of the step that waits."""
        self._calls: deque[_Call] = deque()

    def __repr__(self) -> str:
        return f"link to {self.address[0]}:{self.address[1]}"

    def call(self, request: Request[Any], version: int, timeout_ms: int, done: Done) -> None:
        """Send a request; `done` is called once, later."""
        api = api_of(type(request).__wire__.api_key or 0)
        assert api is not None
        frame = bytearray(encode_request(request, version, 0, self.client_id))
        self.call_encoded(frame, api.response, version, timeout_ms, done)

    def call_encoded(self, frame: bytearray, response: type[Struct], version: int, timeout_ms: int, done: Done) -> None:
        """Send a request that is encoded already, with this link's client id; its correlation id is put in here."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        _CORRELATION_ID.pack_into(frame, _CORRELATION_ID_AT, self._correlation_id)
        call = _Call(self._correlation_id, response, version, done)
        call.timer = self._background.schedule(timeout_ms, lambda: self._timed_out(call))
        self._calls.append(call)
        self._unsent += frame
        if self._socket is None:
            self._connect()
        elif self._open and not self._writing:
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
        if attempt == self._attempt and not self._open:
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
            if self._security.tls is not None:
                context = self._security.tls.context
                try:
                    connected = self._socket = context.wrap_socket(
                        connected, server_hostname=self.address[0], do_handshake_on_connect=False
                    )
                except (OSError, ValueError) as error:
                    self._lost(f"no TLS with {self.address}: {error}")
                    return
            self._loop.add_reader(connected.fileno(), self._on_readable)
        if self._open or self._steps is not None or self._handshake(connected):
            self._send()

    def _handshake(self, connected: socket.socket) -> bool:
        """Whether requests may be sent now."""
        if isinstance(connected, ssl.SSLSocket):
            try:
                connected.do_handshake()
            except ssl.SSLWantReadError:
                if self._writing:
                    self._writing = False
                    self._loop.remove_writer(connected.fileno())
                return False
            except ssl.SSLWantWriteError:
                self._write_when_possible(connected)
                return False
            except (OSError, ValueError) as error:
                self._lost(f"no TLS with {self.address}: {error}")
                return False
        if self._security.sasl is not None:
            self._steps = authenticate(self._security.sasl)
            self._step(next(self._steps))
            return False
        return self._begin()

    def _step(self, step: tuple[Struct, int]) -> None:
        """Send the next request of an authentication."""
        request, version = step
        api = api_of(type(request).__wire__.api_key or 0)
        assert api is not None
        self._asked = (api.response, version)
        self._first += encode_request(request, version, 0, self.client_id)
        self._send()

    def _step_answered(self, frame: memoryview) -> None:
        assert self._steps is not None
        try:
            _, response = decode_response(self._asked[0], frame, self._asked[1])
            self._step(self._steps.send(response))
        except StopIteration:
            self._steps = None
            if self._begin():
                self._send()
        except (WireError, NotAuthenticated) as error:
            self._lost(f"no authentication at {self.address}: {error}")

    def _begin(self) -> bool:
        self._open = True
        if self._connect_timer is not None:
            self._connect_timer.cancel()
        return True

    def _send(self) -> None:
        connected = self._socket
        if connected is None:
            return
        try:
            # Whatever waits goes out only after an authentication.
            unsent = self._unsent if self._open else self._first
            while unsent:
                sent = connected.send(unsent)
                del unsent[:sent]
        except _NOT_NOW:
            pass
        except OSError as error:
            self._lost(f"the connection to {self.address} ended: {error}")
            return
        if unsent:
            self._write_when_possible(connected)
        elif self._writing:
            self._writing = False
            self._loop.remove_writer(connected.fileno())

    def _write_when_possible(self, connected: socket.socket) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(connected.fileno(), self._on_writable)

    def _on_readable(self) -> None:
        connected = self._socket
        if connected is None:
            return
        if not self._open and self._steps is None:
            if self._handshake(connected):
                self._send()
            return
        self._receive(connected)
        # What OpenSSL has decrypted already is no event of the socket.
        while self._socket is connected and isinstance(connected, ssl.SSLSocket) and connected.pending():
            self._receive(connected)

    def _receive(self, connected: socket.socket) -> None:
        try:
            with self._reader.free_space() as space:
                count = connected.recv_into(space)
            frames = self._reader.received(count)
        except _NOT_NOW:
            return
        except (OSError, WireError) as error:
            self._lost(f"the connection to {self.address} ended: {error}")
            return
        if not count:
            self._lost(f"{self.address} ended the connection")
            return
        for frame in frames:
            if self._steps is not None:
                self._step_answered(frame)
            else:
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
        self._connected = self._open = self._writing = False
        self._unsent.clear()
        self._first.clear()
        self._steps = None
        self._reader = FrameReader(MAX_RESPONSE_BYTES)


def _numeric_family(host: str) -> int | None:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            return family
        except OSError:
            continue
    return None
