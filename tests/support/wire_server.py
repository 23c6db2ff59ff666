"""A tiny server on loopback that speaks Kafka's frames: for tests of clients, with answers that the test decides."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from appliance.wire.api import APIS, ApiKey
from appliance.wire.codec import RequestHeader, decode_from, decode_request_header, encode_response
from appliance.wire.frames import FrameReader
from appliance.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from appliance.wire.schema import Struct

CLOSE = b"close"
"""An answer that ends the connection; None is no answer at all, other bytes are sent as they are."""

Answer = Struct | bytes | None
Handler = Callable[[RequestHeader, Struct], Answer]


class WireServer:
    """Answers each request by the handler of its API; ApiVersions by itself, from what has a handler.

    Args:
        handlers: API key -> function of header and body.
        offered: API key -> versions, where they differ from the declared ones.
    """

    def __init__(
        self, handlers: dict[int, Handler] | None = None, offered: dict[int, tuple[int, int]] | None = None
    ) -> None:
        self.handlers: dict[int, Handler] = {ApiKey.API_VERSIONS: self._api_versions} | (handlers or {})
        self.offered = offered or {}
        self.requests: list[tuple[RequestHeader, Struct]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def asked(self, key: ApiKey) -> list[tuple[RequestHeader, Struct]]:
        """The requests of one API so far, in order."""
        return [(header, body) for header, body in self.requests if header.api_key == key]

    def __enter__(self) -> WireServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for open_socket in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join(10)

    def _api_versions(self, header: RequestHeader, body: Struct) -> Answer:
        keys = []
        for key in sorted(self.handlers):
            lowest, highest = self.offered.get(key, (APIS[key].min_version, APIS[key].max_version))
            keys.append(ApiVersion(api_key=key, min_version=lowest, max_version=highest))
        return ApiVersionsResponse(api_keys=keys)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(accepted)
            thread = threading.Thread(target=self._serve, args=(accepted,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        reader = FrameReader(1 << 24)
        with accepted, contextlib.suppress(OSError):
            while data := accepted.recv(65536):
                for frame in reader.feed(data):
                    header = decode_request_header(frame)
                    body, _ = decode_from(
                        APIS[header.api_key].request, bytes(frame), header.api_version, header.body_offset
                    )
                    self.requests.append((header, body))
                    answer = self.handlers[header.api_key](header, body)
                    if answer == CLOSE:
                        return
                    if isinstance(answer, Struct):
                        answer = encode_response(answer, header.api_version, header.correlation_id)
                    if answer:
                        accepted.sendall(answer)
