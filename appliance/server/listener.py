"""A listening socket: accepts connections and takes them to the server's door."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.base.errors import UserError
from appliance.security.principals import PrincipalMapper
from appliance.security.tls import ReloadingContext

if TYPE_CHECKING:
    from appliance.server.authentication import SaslSettings
    from appliance.server.server import Server

_log = logging.getLogger(__name__)

_PAUSE_MS = 200
"""How long accepting rests when the process has run out of file descriptors."""


@dataclass(frozen=True, slots=True, eq=False)
class ListenerProfile:
    """What the clients of one listener have to show, and what they are told of brokers."""

    name: str = "PLAINTEXT"
    tls: ReloadingContext | None = None
    mapper: PrincipalMapper | None = None
    """Makes users out of the names in clients' certificates."""
    sasl: SaslSettings | None = None


DEFAULT_LISTENER = ListenerProfile()


class Listener:
    """Bound without SO_REUSEPORT and close-on-exec: a refused connection proves that this process is gone."""

    def __init__(self, server: Server, host: str, port: int, profile: ListenerProfile = DEFAULT_LISTENER) -> None:
        self._server = server
        self.profile = profile
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            self._socket = socket.socket(family, kind, protocol)
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror or error}", exit_code=3) from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind(address)
            self._socket.listen(server.limits.accept_backlog)
        except OSError as error:
            self._socket.close()
            reason = os.strerror(error.errno) if error.errno else error
            raise UserError(f"cannot listen on {host}:{port}: {reason}", exit_code=3) from error
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._accepting = False
        self._closed = False
        self.resume()

    def close(self) -> None:
        self._closed = True
        self.pause()
        self._socket.close()
        self._server.admission.listener_closed(self)

    def pause(self) -> None:
        """Accept nothing until `resume`; who comes meanwhile waits in the kernel."""
        if self._accepting:
            self._accepting = False
            self._server.loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self._server.loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(self._server.limits.accepts_per_event):
            if not self._accepting:
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("accepting rests for %d ms: %s", _PAUSE_MS, error)
                self.pause()
                self._server.background.schedule(_PAUSE_MS, self.resume)
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._server.limits.send_buffer_bytes >= 0:
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._server.limits.send_buffer_bytes)
            self._server.admission.came(self, accepted, str(address[0]), int(address[1]))
