"""A connection under TLS: the same frames and answers, with OpenSSL between them and the socket.

What differs from a plain one:

- Slices of files are read and encrypted, a bounded piece at a time: the kernel cannot send them by itself.
- OpenSSL may hold decrypted bytes that the loop knows nothing of. Whoever stops reading before they are taken looks
  again (`_look_again`).
- Bytes that the socket did not take have to be offered again as they are: they stay at the head of the queue.
- The handshake comes first. Who fails it is let go after `connection.failed.authentication.delay.ms`.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, cast

from appliance.base.errors import invariant
from appliance.security import security_log
from appliance.security.principals import USER, Principal, distinguished_name
from appliance.server.connection import Connection
from appliance.server.requests import FileRange

if TYPE_CHECKING:
    from appliance.server.listener import ListenerProfile
    from appliance.server.server import Server

PIECE_BYTES = 128 * 1024
"""What is read from a file and encrypted at once: eight records of TLS."""
TURN_BYTES = 1 << 20
"""What one connection sends or takes in before others get their turn."""
_WANTS = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsConnection(Connection):
    """All methods are called on the loop's thread."""

    __slots__ = ("_handshaking", "_looking", "_offered", "_refused", "_tls")

    def __init__(self, server: Server, sock: socket.socket, peer: str, host: str, profile: ListenerProfile) -> None:
        invariant(profile.tls is not None, "a TLS connection of a listener without keys")
        assert profile.tls is not None
        self._tls = profile.tls.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._handshaking = True
        self._looking = False
        """Whether a look at what OpenSSL holds is scheduled."""
        self._offered = False
        """Whether the head of the queue was offered to OpenSSL, which has to see it again."""
        self._refused = False
        super().__init__(server, self._tls, peer, host)
        self.listener = profile

    # The handshake

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._start_writing()
            return
        except (OSError, ValueError) as error:
            self._refuse(f"TLS handshake failed: {getattr(error, 'reason', None) or error}")
            return
        self._handshaking = False
        if self.listener.mapper is not None and not self._name():
            return
        self._on_readable()

    def _name(self) -> bool:
        """Take over the name in the client's certificate, if it has shown one."""
        certificate = self._tls.getpeercert()
        if not certificate or self.listener.mapper is None:
            return True
        # The type that Python declares for a subject does not say that its parts are pairs.
        name = distinguished_name(cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ())))
        user = self.listener.mapper.name_of(name)
        if user is None:
            self._refuse(f"no rule of ssl.principal.mapping.rules fits {name}")
            return False
        self.principal = Principal(USER, user)
        security_log.authenticated(str(self.principal), "TLS", self.peer, self.listener.name)
        return True

    def _refuse(self, reason: str) -> None:
        """End the connection, but not at once: whoever tries again and again costs little."""
        self._refused = True
        security_log.refused("TLS", self.peer, self.listener.name, reason)
        self._pause_reading()
        delay_ms = self.server.limits.failed_authentication_delay_ms
        self.server.background.schedule(delay_ms, lambda: self.close(reason))

    # In

    def _on_readable(self) -> None:
        if self.held or self._refused:
            return
        server = self.server
        if not server.tick_scheduled:
            server.begin_tick()
        self.last_active_ms = server.now_ms
        if self._handshaking:
            self._handshake()
            return
        before = self._end
        ended = self._receive()
        if self._end > before:
            self._handle_frames()
        if self.closed:
            return
        if ended:
            self.close("cut off within a frame" if self._end > self._start and self._blocked_by is None else None)
        else:
            self._look_again()

    def _receive(self) -> bool:
        """Take in what is there and has room; returns whether the client has ended the connection."""
        taken = 0
        try:
            while taken < TURN_BYTES and self._end < len(self.buffer):
                received = self._tls.recv_into(self.view[self._end :])
                if not received:
                    return True
                taken += received
                self.bytes_in += received
                self._end += received
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLWantWriteError:
            self._start_writing()
        except OSError as error:
            self.close(f"receive failed: {error}")
        return False

    def _look_again(self) -> None:
        """Come back for what OpenSSL holds already: the socket will not tell of it."""
        if self._looking or self.closed or not self._reading or self.held or self._handshaking:
            return
        if self._tls.pending() and self._end < len(self.buffer):
            self._looking = True
            self.server.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._reading and not self.closed:
            self._on_readable()

    def _resume_reading(self) -> None:
        super()._resume_reading()
        self._look_again()

    def end_tick(self) -> None:
        super().end_tick()
        self._look_again()

    # Out

    def _send_first(self, data: bytes) -> None:
        self._unsent.append(data)
        self._send_queue()

    def _send_queue(self) -> None:
        unsent = self._unsent
        left = TURN_BYTES
        try:
            while unsent and left > 0:
                if not self._offered:
                    self._prepare_head()
                head = unsent[0]
                assert isinstance(head, bytes)
                self._offered = True
                sent = self._tls.send(head)
                self._offered = False
                self.bytes_out += sent
                left -= sent
                if sent < len(head):
                    unsent[0] = head[sent:]
                else:
                    unsent.popleft()
        except _WANTS:
            pass
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if unsent:
            self._start_writing()
        elif self._writing:
            self._writing = False
            self.server.loop.remove_writer(self._file_descriptor)

    def _prepare_head(self) -> None:
        """Put the next piece to the head of the queue: small answers together, a part of a file by itself."""
        unsent = self._unsent
        head = unsent[0]
        if isinstance(head, FileRange):
            unsent.appendleft(self._read(head))
            return
        if len(unsent) == 1 and len(head) <= PIECE_BYTES:
            return
        pieces: list[bytes] = []
        size = 0
        while unsent and size < PIECE_BYTES:
            item = unsent[0]
            if isinstance(item, FileRange):
                if size + item.length > PIECE_BYTES:
                    break
                # The header and a small slice fit into one piece.
                item = self._read(item)
            else:
                unsent.popleft()
            pieces.append(item)
            size += len(item)
        data = b"".join(pieces)
        if len(data) > PIECE_BYTES:
            unsent.appendleft(data[PIECE_BYTES:])
            data = data[:PIECE_BYTES]
        unsent.appendleft(data)

    def _read(self, item: FileRange) -> bytes:
        """The next piece of the file range at the head of the queue, which loses it. What is cold was read before."""
        data = os.pread(item.file_descriptor, min(item.length, PIECE_BYTES), item.position)
        if not data:
            raise OSError(f"a file ended {item.length} bytes before what was promised to {self.peer}")
        item.position += len(data)
        item.length -= len(data)
        if not item.length:
            self._unsent.popleft()
            item.release()
        return data

    def _on_writable(self) -> None:
        if self._handshaking:
            self._writing = False
            self.server.loop.remove_writer(self._file_descriptor)
            self._on_readable()
            return
        super()._on_writable()
        self._look_again()

    # The end

    def close(self, reason: str | None = None) -> None:
        if not self.closed and not self._handshaking:
            try:
                # Says goodbye without waiting for an answer.
                self._tls.unwrap()
            except (OSError, ValueError):
                pass
        super().close(reason)
