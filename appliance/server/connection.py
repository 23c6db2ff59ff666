"""One client connection on a raw non-blocking socket, with a receive buffer and an output queue of its own.

In: one `recv` for each readiness event, then every complete frame in the buffer is handled. While batches of this tick
are still views into the buffer (`hold`), nothing is received into it; the tick writes them to the log and lets go.

Out: answers leave in the order of the requests. The queue (`_answers`) holds finished frames, late answers (built at
the end of the tick from a tuple whose first item builds it) and `Pending` placeholders. What may leave goes out in one
`send`; file slices follow their header by sendfile, with MSG_MORE on the header.

As in Kafka, one request of a connection is handled after the other: the next frame waits while a placeholder that
blocks is open, while written batches have to become visible first, and while the client does not read its answers.
Produce requests are the exception: many may be in flight.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from appliance.security.principals import ANONYMOUS
from appliance.server.dispatcher import BadRequest, Dispatcher
from appliance.server.listener import DEFAULT_LISTENER, ListenerProfile
from appliance.server.requests import JOINED_MAX_BYTES, FileRange, OutputItem, Pending
from appliance.wire.api import ApiKey

if TYPE_CHECKING:
    from appliance.server.authentication import SaslGate, SaslSession
    from appliance.server.server import Server

_log = logging.getLogger(__name__)

_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_unpack_frame_start = struct.Struct(">ihhi").unpack_from
_FRAME_START_BYTES = 12
"""size of what follows, API key, API version, correlation id. No request is smaller."""
_PRODUCE = int(ApiKey.PRODUCE)
_SENT_AT_ONCE_MAX_BYTES = 256 << 10
"""Of what lies in memory; then other connections have their turn."""

LateAnswer = tuple[Any, ...]
"""`(build, ...)`: at the end of the tick `build(connection, this tuple)` gives the frame or a `Pending`."""
LateBuilder = Callable[["Connection", LateAnswer], "bytes | Pending"]


class Connection:
    """Bytes in, frames handled, answers out. All methods are called on the loop's thread."""

    __slots__ = (
        "_blocked_by",
        "_end",
        "_file_descriptor",
        "_has_large_buffer",
        "_reading",
        "_reserved",
        "_socket",
        "_start",
        "_starved",
        "_unsent",
        "_writing",
        "answers",
        "buffer",
        "bytes_in",
        "bytes_out",
        "closed",
        "dispatcher",
        "fast",
        "fast_fetch",
        "fast_many",
        "follower_fetch",
        "held",
        "host",
        "last_active_ms",
        "listener",
        "peer",
        "principal",
        "server",
        "session",
        "software",
        "touched",
        "view",
        "without_lease",
    )

    def __init__(self, server: Server, sock: socket.socket, peer: str, host: str) -> None:
        self.server = server
        self.peer = peer
        """`host:port` of the other end."""
        self.host = host
        self.closed = False
        self.held = False
        """Whether views into the receive buffer wait for this tick's write."""
        self.touched = False
        """Whether the connection is on the tick's list."""
        self.fast: Any = None
        """What the raw handler of Produce remembers of this connection's last request."""
        self.fast_many: Any = None
        """The same for requests with several partitions."""
        self.fast_fetch: Any = None
        """What that of Fetch remembers."""
        self.follower_fetch: Any = None
        """The same of a follower's fetches."""
        self.listener: ListenerProfile = DEFAULT_LISTENER
        """Where it came in."""
        self.principal = ANONYMOUS
        """Who the client has shown to be."""
        self.dispatcher: Dispatcher | SaslGate = server.dispatcher
        """What handles its frames: the server's own, once the client may ask for anything."""
        self.session: SaslSession | None = None
        """How it has shown that by SASL."""
        self.software = ("", "")
        """Name and version of the client's software, where it has told them (KIP-511)."""
        self.without_lease = False
        """A follower's: answered also while the server holds answers back."""
        self.last_active_ms = server.now_ms
        self.bytes_in = 0
        self.bytes_out = 0
        self._socket = sock
        self._file_descriptor = sock.fileno()
        self.buffer = bytearray(server.limits.receive_buffer_bytes)
        """Received bytes; raw handlers read their frame in it."""
        self.view = memoryview(self.buffer)
        """Slices of it may be kept until the end of the tick, after `hold`."""
        self._start = 0
        self._end = 0
        self._reserved = 0
        """What the receive buffer may have beyond its first size."""
        self._starved = False
        """Whether a frame waits until others have given such memory back."""
        self.answers: list[bytes | LateAnswer | Pending] = []
        """In the order of the requests. Raw handlers append late answers to it, after `hold`."""
        self._unsent: deque[OutputItem] = deque()
        self._blocked_by: Pending | None = None
        self._reading = True
        self._writing = False
        self._has_large_buffer = not 0 <= server.limits.send_buffer_bytes < server.limits.large_send_buffer_bytes
        server.loop.add_reader(self._file_descriptor, self._on_readable)

    @property
    def waits(self) -> bool:
        """Whether a request of this connection is not answered yet."""
        return bool(self.answers)

    # In

    def _on_readable(self) -> None:
        if self.held:
            return
        server = self.server
        if not server.tick_scheduled:
            server.begin_tick()
        self.last_active_ms = server.now_ms
        end = self._end
        try:
            received = self._socket.recv_into(self.view[end:] if end else self.buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(f"receive failed: {error}")
            return
        if not received:
            self.close("cut off within a frame" if end > self._start and self._blocked_by is None else None)
            return
        self.bytes_in += received
        self._end = end + received
        self._handle_frames()

    def _handle_frames(self) -> None:
        """Handle every complete frame that may be handled now, then make room for the rest."""
        server = self.server
        dispatcher = self.dispatcher
        raw_handlers = dispatcher.raw_handlers
        limits = server.limits
        answers = self.answers
        position = self._start
        end = self._end
        wanted = 0
        try:
            while end - position >= _FRAME_START_BYTES:
                size, api_key, version, correlation_id = _unpack_frame_start(self.buffer, position)
                frame_end = position + 4 + size
                if frame_end > end or size < 8:
                    most = min(limits.max_frame_bytes, dispatcher.max_frame_bytes)
                    if size < 8 or size > most:
                        raise BadRequest(f"a frame of {size} bytes; at most {most} are taken")
                    wanted = 4 + size
                    break
                if self._blocked_by is not None or self._unsent or len(answers) >= limits.max_in_flight:
                    break
                if self.held and api_key != _PRODUCE:
                    # Handled after this tick's write, so that it sees what was produced before it.
                    break
                raw = raw_handlers.get(api_key)
                if raw is None or not raw(self, position, frame_end, version, correlation_id):
                    answer = dispatcher.dispatch(self, self.view[position + 4 : frame_end])
                    if answer is not None:
                        self.queue(answer)
                    if self.closed:
                        return
                position = frame_end
        except BadRequest as error:
            self.close(str(error))
            return
        except Exception:
            _log.exception("a request from %s could not be handled", self.peer)
            self.close("a request could not be handled")
            return
        self._start = position
        if self.held:
            # Nothing is received or moved before the tick has ended.
            return
        if position == end:
            self._start = self._end = 0
            if self._reserved:
                self._share_memory()
        else:
            self._make_room(wanted)

    def _make_room(self, wanted: int) -> None:
        """Move what is left to the front, or into a larger buffer, or stop reading while nothing can be handled."""
        start, end = self._start, self._end
        size = len(self.buffer)
        left = end - start
        if end < size and start + wanted <= size:
            # The frame's rest fits behind what is there. (`wanted` is 0 where whole frames wait their turn.)
            return
        if wanted > size and not self._reserve(wanted):
            self._starved = True
            self._pause_reading()
            self.server.starved.append(self)
            return
        if wanted > size:
            # Doubling, not the frame's size at once: a size field alone must not cost memory.
            buffer = bytearray(2 * size)
            buffer[:left] = self.view[start:end]
            self.buffer = buffer
            self.view = memoryview(buffer)
        elif left == size:
            # Only frames that must wait; what the client sends meanwhile waits in the kernel.
            self._pause_reading()
            return
        else:
            self.buffer[:left] = self.buffer[start:end]
        self._start, self._end = 0, left

    def _reserve(self, wanted: int) -> bool:
        """Whether a frame of this size may be received: all of it, or two that grow could wait for each other."""
        size = len(self.buffer)
        while size < wanted:
            size *= 2
        more = size - self.server.limits.receive_buffer_bytes - self._reserved
        if more > 0:
            if not self.server.reserve(more):
                return False
            self._reserved += more
        return True

    def _share_memory(self) -> None:
        """Others wait for memory, and this connection's large buffer is empty."""
        if self.server.starved:
            self.shrink_if_idle()

    def fed(self) -> bool:
        """Others gave memory back: go on with the frame that waited for it, unless that is still too little."""
        if self.closed:
            return True
        size, *_ = _unpack_frame_start(self.buffer, self._start)
        if not self._reserve(4 + size):
            return False
        self._starved = False
        self._handle_frames()
        self._resume_reading()
        return True

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self.server.loop.remove_reader(self._file_descriptor)

    def _resume_reading(self) -> None:
        if not self._reading and not self.closed and not self._starved:
            self._reading = True
            self.server.loop.add_reader(self._file_descriptor, self._on_readable)

    def hold(self) -> None:
        """Views into the receive buffer are kept until the end of this tick."""
        self.held = True
        if not self.touched:
            self.touched = True
            self.server.touched.append(self)

    def shrink_if_idle(self) -> None:
        """Give a large receive buffer back. Called now and then by the server."""
        size = self.server.limits.receive_buffer_bytes
        if self._end == 0 and not self.held and len(self.buffer) > size:
            self.buffer = bytearray(size)
            self.view = memoryview(self.buffer)
            self._give_back()

    def _give_back(self) -> None:
        reserved, self._reserved = self._reserved, 0
        self.server.give_back(reserved)

    # Out

    def queue(self, answer: bytes | LateAnswer | Pending) -> None:
        """Put an answer, or its place, behind those of the earlier requests; it leaves at the end of the tick."""
        self.answers.append(answer)
        if type(answer) is Pending and answer.blocks and not answer.answered:
            self._blocked_by = answer
        if not self.touched:
            self.touched = True
            self.server.touched.append(self)

    def answered(self, pending: Pending) -> None:
        """A placeholder was filled."""
        if self.closed:
            _release(pending.items or [])
            return
        if self._blocked_by is pending:
            self._blocked_by = None
        if not self.touched:
            self.touched = True
            self.server.touched.append(self)
        if not self.server.tick_scheduled:
            self.server.begin_tick()

    def end_tick(self) -> None:
        """The log holds what was staged: build late answers, send what may leave, go on with frames that waited."""
        self.touched = False
        if self.closed:
            return
        self.held = False
        answers = self.answers
        if len(answers) == 1 and type(answers[0]) is tuple and not self._unsent:
            # One produce request in flight: the usual case, without lists.
            answer = answers[0][0](self, answers[0])
            if type(answer) is bytes:
                answers.clear()
                self._send_first(answer)
            else:
                answers[0] = answer
        elif answers:
            self._flush()
        if self._end and not self.closed:
            if self._start == self._end:
                self._start = self._end = 0
                if self._reserved:
                    self._share_memory()
            else:
                self._handle_frames()
            if not self._reading and self._end < len(self.buffer):
                self._resume_reading()

    def build_late_answers(self) -> None:
        """Answers are held back in this tick, but what became of its writes is known only now."""
        answers = self.answers
        for index, answer in enumerate(answers):
            if type(answer) is tuple:
                answers[index] = answer[0](self, answer)

    def _flush(self) -> None:
        """Hand over to the socket every answer before the first open placeholder; build all late ones in any case."""
        answers = self.answers
        ready: list[OutputItem] = []
        only_bytes = True
        done = 0
        for answer in answers:
            if type(answer) is tuple:
                answer = answer[0](self, answer)
                answers[done] = answer
            if type(answer) is bytes:
                ready.append(answer)
            elif answer.items is not None:  # type: ignore[union-attr]
                ready.extend(answer.items)  # type: ignore[union-attr]
                only_bytes = False
            else:
                break
            done += 1
        if done < len(answers):
            self.build_late_answers()
            del answers[:done]
        else:
            answers.clear()
        if self.closed:
            _release(ready)
            return
        if ready:
            if self._unsent:
                self._unsent.extend(ready)
            elif only_bytes:
                self._send_first(b"".join(ready))  # type: ignore[arg-type]
            else:
                self._unsent.extend(ready)
                self._send_queue()

    def _send_first(self, data: bytes) -> None:
        """Send on an empty queue."""
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        self.bytes_out += sent
        if sent < len(data):
            # What is large is not copied once more with each part that the socket takes.
            is_large = len(data) > JOINED_MAX_BYTES
            self._unsent.append(memoryview(data)[sent:] if is_large else data[sent:])  # type: ignore[arg-type]
            self._start_writing()

    def _send_queue(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                item = unsent[0]
                if isinstance(item, bytes) and len(item) <= JOINED_MAX_BYTES:
                    if not self._send_bytes():
                        break
                    continue
                if isinstance(item, bytes | memoryview):
                    if not self._send_large(item):
                        break
                    continue
                if not self._send_range(item):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(f"send failed: {error}")
            return
        if unsent:
            self._start_writing()
        elif self._writing:
            self._writing = False
            self.server.loop.remove_writer(self._file_descriptor)

    def _send_bytes(self) -> bool:
        """Send the bytes at the head of the queue together; false when the socket takes no more."""
        unsent = self._unsent
        pieces: list[bytes] = []
        flags = 0
        for item in unsent:
            if not isinstance(item, bytes) or len(item) > JOINED_MAX_BYTES:
                flags = _MSG_MORE
                break
            pieces.append(item)
        data = b"".join(pieces) if len(pieces) > 1 else pieces[0]
        sent = self._socket.send(data, flags)
        self.bytes_out += sent
        for _ in pieces:
            unsent.popleft()
        if sent < len(data):
            unsent.appendleft(data[sent:])
            return False
        return True

    def _send_large(self, item: bytes | memoryview) -> bool:
        """Send a part of what lies in memory at the head of the queue; false when that was enough for this turn."""
        unsent = self._unsent
        view = memoryview(item)
        size = len(view)
        part, is_last = view[:_SENT_AT_ONCE_MAX_BYTES], size <= _SENT_AT_ONCE_MAX_BYTES and len(unsent) == 1
        sent = self._socket.send(part, 0 if is_last else _MSG_MORE)
        self.bytes_out += sent
        if sent == size:
            unsent.popleft()
            return True
        unsent[0] = view[sent:]  # type: ignore[assignment]
        return False

    def _send_range(self, item: FileRange) -> bool:
        """Send the piece of a file at the head of the queue; false when the socket takes no more."""
        sent = os.sendfile(self._file_descriptor, item.file_descriptor, item.position, item.length)
        if not sent:
            raise OSError(f"a file ended {item.length} bytes before what was promised to {self.peer}")
        self.bytes_out += sent
        item.position += sent
        item.length -= sent
        if item.length:
            if self._has_large_buffer:
                return False
            self._enlarge_buffer()
            return True
        self._unsent.popleft()
        item.release()
        return True

    def _enlarge_buffer(self) -> None:
        """The client reads large slices: let the kernel take more of them at once."""
        self._has_large_buffer = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.server.limits.large_send_buffer_bytes)

    def _start_writing(self) -> None:
        if not self._writing:
            self._writing = True
            self.server.loop.add_writer(self._file_descriptor, self._on_writable)

    def _on_writable(self) -> None:
        if not self.server.tick_scheduled:
            self.server.begin_tick()
        self.last_active_ms = self.server.now_ms
        self._send_queue()
        if not self._unsent and not self.touched and not self.closed:
            # Frames that waited for the client to read its answers.
            self.touched = True
            self.server.touched.append(self)

    # The end

    def close(self, reason: str | None = None) -> None:
        """End the connection; `reason` is logged where it is not the usual end."""
        if self.closed:
            return
        self.closed = True
        if reason is not None:
            self.server.closed_for_cause += 1
            _log.info("connection from %s closed: %s", self.peer, reason)
        loop = self.server.loop
        if self._reading:
            loop.remove_reader(self._file_descriptor)
        if self._writing:
            loop.remove_writer(self._file_descriptor)
        self._socket.close()
        if self.session is not None:
            self.session.close()
        self.server.connection_closed(self)
        if self._reserved:
            self._give_back()
        _release(self._unsent)
        self._unsent.clear()
        answers, self.answers = self.answers, []
        for answer in answers:
            if isinstance(answer, Pending):
                if answer.items is not None:
                    _release(answer.items)
                answer.connection_closed()


def _release(items: Iterable[OutputItem]) -> None:
    for item in items:
        if isinstance(item, FileRange):
            item.release()
