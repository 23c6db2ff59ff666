"""The gateway's process: `appliance up` starts it as the service `http`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from appliance.base.clock import SystemClock
from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle, ServiceSettings
from appliance.client.security import service_security
from appliance.http_ingest.app import ingest_app
from appliance.http_ingest.cluster import Cluster
from appliance.http_ingest.limits import HttpLimits, principal_of
from appliance.http_ingest.producer import Producer

BACKLOG = 2_048
DRAIN_TIMEOUT_S = 10
KEEP_ALIVE_S = 75
"""Longer than the pauses of clients and balancers, to whom a connection that ends under their hands is an error."""
EXIT_PORT_NOT_USABLE = 3


def serve(settings: ServiceSettings, handle: ProcessHandle) -> None:
    """Serve HTTP ingest until `handle.stopping` is set, then finish the requests that run.

    Raises:
        UserError: the port is taken (exit code 3), or a limit in the configuration is wrong.
    """
    limits = HttpLimits.of(settings.properties)
    listener = _listen(settings.host, settings.port)
    with contextlib.closing(listener), asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve(settings, handle, limits, listener))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(f"cannot listen on {host}:{port} for HTTP: {error.strerror}", EXIT_PORT_NOT_USABLE) from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: only whoever started this process handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(settings: ServiceSettings, handle: ProcessHandle, limits: HttpLimits, listener: socket.socket) -> None:
    clock = SystemClock()
    security, act_as = service_security(settings.properties), principal_of(settings.properties)
    cluster = Cluster(settings.bootstrap_servers, "appliance-http", clock, security, act_as)
    producer = Producer(cluster, limits, clock)
    server = _Server(
        uvicorn.Config(
            ingest_app(producer, cluster, limits),
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=limits.max_connections,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        host, port = listener.getsockname()[:2]
        handle.ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        await asyncio.get_running_loop().run_in_executor(None, handle.stopping.wait)
        server.should_exit = True
    await serving
    await producer.flush()
    await cluster.close()
