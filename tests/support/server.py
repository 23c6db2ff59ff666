"""A `Server` of our own on a thread with its own loop, for tests that talk to it over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from appliance.broker_actors.event_loop import new_event_loop
from appliance.server.background import LoopBackground
from appliance.server.dispatcher import HandlerEntry
from appliance.server.handlers.api_versions import served_versions
from appliance.server.limits import Limits
from appliance.server.listener import DEFAULT_LISTENER, ListenerProfile
from appliance.server.server import Server

CALL_TIMEOUT_S = 10


class ServerThread:
    """The server and the thread that runs it. Touch the server only by `on_loop`."""

    profile: ListenerProfile = DEFAULT_LISTENER
    client_tls: ssl.SSLContext | None = None
    """What `connect` uses. Both are set by tests that ask the same things under TLS."""

    def __init__(
        self,
        handlers: Mapping[int, HandlerEntry],
        advertised: Mapping[int, tuple[int, int]] | None,
        limits: Limits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self.background = LoopBackground(loop, threads=2)
        versions = served_versions(handlers) if advertised is None else advertised
        self.server = Server(loop, handlers, versions, limits, self.background)
        self.port = self.server.listen("127.0.0.1", 0, self.profile)
        self._thread = threading.Thread(target=loop.run_forever, daemon=True)
        self._thread.start()

    def on_loop(self, action: Callable[[], Any]) -> Any:
        """Run `action` on the loop's thread and give its result."""
        result: list[Any] = []
        done = threading.Event()

        def run() -> None:
            try:
                result.append(action())
            finally:
                done.set()

        self.background.post(run)
        assert done.wait(CALL_TIMEOUT_S)
        return result[0]

    def connect(self) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=CALL_TIMEOUT_S)
        return plain if self.client_tls is None else self.client_tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def stop(self) -> None:
        self.on_loop(self.server.close)
        self.on_loop(self.background.timers.close)
        self.background.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self.loop.close()


@contextmanager
def running_server(
    handlers: Mapping[int, HandlerEntry],
    *,
    advertised: Mapping[int, tuple[int, int]] | None = None,
    limits: Limits | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Iterator[ServerThread]:
    server = ServerThread(handlers, advertised, limits or Limits(), loop or new_event_loop())
    try:
        yield server
    finally:
        server.stop()


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = sock.recv(count - len(data))
        if not some:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += some
    return data


def receive_frame(sock: socket.socket) -> bytes:
    """The next frame without its size."""
    (size,) = struct.unpack(">i", receive_exactly(sock, 4))
    return receive_exactly(sock, size)


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has ended the connection, without having sent anything more."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True
