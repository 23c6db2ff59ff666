"""An HTTP proxy with bad days in front of an S3 server, for what only a real connection shows."""

from __future__ import annotations

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

Rule = Callable[[str, str], str | None]
"""Method and path to what happens: None, "503", "lose" (forwarded, the answer thrown away), "reset" (not forwarded),
"stall" (nothing, for `stall_s`), "late" (reset, but forwarded a while later), "cut" (half of the answer's body) or
"damage" (a byte of the answer is flipped)."""
LATE_S = 1.0


class FaultProxy:
    """A context manager: forwards to `127.0.0.1:port`, as far as `rule` lets it."""

    def __init__(self, port: int) -> None:
        self.rule: Rule = lambda method, path: None
        self.stall_s = 30.0
        self.requests: Counter[str] = Counter()
        """Requests that came in, by method."""
        self._closing = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if self.headers.get("Expect", "").lower() == "100-continue":
                    self.close_connection = False
                body = self.rfile.read(length)
                proxy.requests[self.command] += 1
                fate = proxy.rule(self.command, self.path)
                if fate == "503":
                    self.send_response(503, "Slow Down")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if fate == "stall":
                    proxy._closing.wait(proxy.stall_s)
                if fate in ("reset", "stall"):
                    self.close_connection = True
                    return
                if fate == "late":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    proxy._closing.wait(LATE_S)
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                try:
                    headers = {key: value for key, value in self.headers.items() if key.lower() != "expect"}
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    data = answer.read()
                finally:
                    upstream.close()
                if fate in ("lose", "late"):
                    self.close_connection = True
                    return
                if fate == "damage" and data:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                self.send_response(answer.status, answer.reason)
                for key, value in answer.getheaders():
                    if key.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                        self.send_header(key, value)
                if self.command == "HEAD" or answer.status in (204, 304):
                    self.send_header("Content-Length", answer.getheader("Content-Length") or "0")
                else:
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if fate == "cut":
                    self.close_connection = True
                    data = data[: len(data) // 2]
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"
