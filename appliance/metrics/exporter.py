"""`GET /metrics` on a port of its own, in a thread of its own."""

from __future__ import annotations

import os
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.registry import Collector

from appliance.base.errors import UserError


class Exporter:
    """Serves the text format of Prometheus until it is closed."""

    def __init__(self, host: str, port: int, collector: Collector) -> None:
        """`collector` is asked at each scrape, in the exporter's thread.

        Raises:
            UserError: the address cannot be had (exit code 3).
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        ProcessCollector(registry=registry)
        try:
            started: tuple[WSGIServer, Thread] = start_http_server(port, addr=host, registry=registry)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise UserError(f"cannot serve metrics on {host}:{port}: {reason}", exit_code=3) from error
        self._server, self._thread = started
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
