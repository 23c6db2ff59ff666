"""The demo's appliance: `appliance up` as a child, on free ports where the usual ones are taken."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.base.errors import UserError

BROKERS = 3
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 40


@dataclass(frozen=True, slots=True)
class Addresses:
    """What the READY line said."""

    bootstrap_servers: str
    http: str
    connect: str
    object_store: str


@contextlib.contextmanager
def running_appliance(folder: Path, runtime: str) -> Iterator[Addresses]:
    """Start an appliance below `folder`, stop it at the end."""
    log = folder / "appliance.log"
    command = [str(Path(sys.executable).with_name("appliance")), "up", "--runtime", runtime]
    command += ["--brokers", str(BROKERS), "--data-dir", str(folder / "data")]
    command += ["--port", str(first_free(9092, BROKERS)), "--http-port", str(first_free(8082, 1))]
    command += ["--connect-port", str(first_free(8083, 1))]
    with log.open("wb") as opened:
        # A session of its own: Ctrl-C reaches the demo alone, which then ends the appliance in good order.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=opened, start_new_session=True)
    try:
        yield _wait_ready(process, log)
    finally:
        _stop(process)


def first_free(port: int, count: int) -> int:
    """`port` if it and the ones after it are free, else 0: take free ones."""
    with contextlib.ExitStack() as sockets:
        for number in range(port, port + count):
            probe = sockets.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return 0
    return port


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> Addresses:
    assert process.stdout is not None
    timer = threading.Timer(START_TIMEOUT_S, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            if line.startswith(b"READY "):
                told = json.loads(line.removeprefix(b"READY "))
                return Addresses(told["bootstrap_servers"], told["http"], told["connect"], told["object_store"])
    finally:
        timer.cancel()
    last = log.read_text(errors="replace").splitlines()[-5:]
    raise UserError("the appliance did not start:\n  " + "\n  ".join(last), 1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.stdout is not None
    process.stdout.close()
