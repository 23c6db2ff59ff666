"""The connector worker's process: `appliance up` starts it as the service `connect`."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn

from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle, ServiceSettings
from connectors.runtime.launchers import launcher_for
from connectors.runtime.rest import connect_app
from connectors.runtime.supervisor import Supervisor

EXIT_PORT_NOT_USABLE = 3
DRAIN_TIMEOUT_S = 5


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: only whoever started this process handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: ServiceSettings, handle: ProcessHandle) -> None:
    """Run connectors and serve their REST API until `handle.stopping` is set.

    Raises:
        UserError: the port is taken (exit code 3).
    """
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.closing(listener):
        try:
            listener.bind((settings.host, settings.port))
            listener.listen()
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            raise UserError(
                f"cannot listen on {where} for connectors: {error.strerror}", EXIT_PORT_NOT_USABLE
            ) from None
        host, port = listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        supervisor = Supervisor(
            settings.bootstrap_servers,
            settings.object_store,
            launcher_for(settings.runtime),
            handle.stopping,
            settings.properties,
        )
        if not supervisor.load():
            return
        server = _Server(
            uvicorn.Config(
                connect_app(supervisor, settings.cluster_id, address),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_TIMEOUT_S,
            )
        )
        serving = threading.Thread(target=server.run, args=([listener],), name="rest", daemon=True)
        serving.start()
        handle.ready(f"http://{address}")
        supervisor.watch()
        server.should_exit = True
        serving.join(DRAIN_TIMEOUT_S)
