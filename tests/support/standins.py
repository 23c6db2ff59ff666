"""Stand-ins for broker, controller and service: enough of a server to see what a runtime does with a process.

Each serves one-line commands on its port: `pid`, `append TEXT`, `read`, `crash`, `fail TEXT`, `deaf` (from then on it
does not obey `stopping`), `child` (starts a process of its own and tells its pid).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from appliance.base.errors import UserError
from appliance.base.processes import BrokerSettings, ControllerSettings, ProcessHandle, ServiceSettings

CLUSTER_ID = "stand-in-cluster-id-00"


def run_controller(settings: ControllerSettings, handle: ProcessHandle) -> None:
    _serve(settings.host, settings.port, None, handle)


def run_broker(settings: BrokerSettings, handle: ProcessHandle) -> None:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    _serve(settings.host, settings.port, settings.data_dir / "data", handle)


def run_service(settings: ServiceSettings, handle: ProcessHandle) -> None:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    _serve(settings.host, settings.port, settings.data_dir / "data", handle, scheme="http://")


def run_without_store(settings: ControllerSettings, handle: ProcessHandle) -> None:
    raise UserError(f"object store {settings.object_store} is not reachable: stand-in", exit_code=4)


def run_with_a_bug(settings: BrokerSettings, handle: ProcessHandle) -> None:
    raise RuntimeError("a bug of ours")


def run_never_ready(settings: BrokerSettings, handle: ProcessHandle) -> None:
    handle.stopping.wait()


def _serve(host: str, port: int, data: Path | None, handle: ProcessHandle, scheme: str = "") -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror}", exit_code=3) from error
        listener.listen()
        listener.settimeout(0.02)
        print("a stray print must not reach the parent's line")
        handle.ready(f"{scheme}{host}:{listener.getsockname()[1]}")
        deaf = False
        while deaf or not handle.stopping.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, connection.makefile("rw") as stream:
                verb, _, rest = stream.readline().strip().partition(" ")
                if verb == "crash":
                    os._exit(9)
                if verb == "fail":
                    raise UserError(rest, exit_code=3)
                deaf = deaf or verb == "deaf"
                stream.write(f"{_answer(verb, rest, data)}\n")


def _answer(verb: str, rest: str, data: Path | None) -> str:
    match verb:
        case "pid":
            return str(os.getpid())
        case "append" if data is not None:
            with data.open("a") as file:
                file.write(rest)
            return "ok"
        case "read" if data is not None:
            return data.read_text() if data.exists() else ""
        case "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            return str(child.pid)
        case _:
            return "ok"


def ask(address: str, command: str, timeout_s: float = 5.0) -> str:
    """Send a command to a stand-in; its answer."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(f"{command}\n".encode())
        with connection.makefile() as stream:
            return stream.readline().strip()
