"""An `appliance up` of a test's own: started, waited for, looked into, and ended whatever happens."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.repo import REPO

REAL = ("appliance.cli", "up")
STANDINS = ("tests.support.standin_up",)
_MARK = "TEST_RUN_MARK"


class RunningAppliance:
    """A process `appliance up`, in a session of its own, with free ports unless told otherwise.

    Args:
        folder: for its data (`folder/data`) and its log (`folder/log`).
        arguments: flags.
        module: what to run: REAL or STANDINS.
        environment: variables beside this process's own.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        module: Sequence[str] = STANDINS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        defaults = {"--data-dir": str(folder / "data"), "--port": "0", "--http-port": "0", "--connect-port": "0"}
        flags = list(arguments)
        for flag, value in defaults.items():
            if flag not in flags:
                flags += [flag, value]
        self._mark = uuid.uuid4().hex
        self._log = folder / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *module, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=REPO,
                env={**python_environment(), **(environment or {}), _MARK: self._mark},
            )

    def __enter__(self) -> RunningAppliance:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(10)
        for left in Path("/tmp").glob(f"appliance-{self.process.pid}-*"):
            shutil.rmtree(left, ignore_errors=True)

    def ready(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """The READY line's content; fails when standard output says anything else or ends."""
        assert self.process.stdout is not None
        line = _readline(self.process, timeout_s)
        assert line.startswith("READY "), f"{line!r}\n{self.log()}"
        content = json.loads(line.removeprefix("READY "))
        assert isinstance(content, dict)
        return content

    def exit_code(self, timeout_s: float = 30.0) -> int:
        """Wait for the end."""
        return self.process.wait(timeout_s)

    def signal_group(self, number: int) -> None:
        """As a terminal does with Ctrl-C: to every process of the group."""
        os.killpg(self.process.pid, number)

    def log(self) -> str:
        return self._log.read_text()

    def processes(self) -> list[int]:
        """All living processes that stem from this appliance, wherever they hang in the tree now."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if f"{_MARK}={self._mark}".encode() in environment:
                    found.append(int(entry.name))
        return found

    def wait_until_gone(self, timeout_s: float = 15.0) -> None:
        """Wait until no process is left; fails with what is."""
        wait_for(lambda: not self.processes(), timeout_s, lambda: f"left: {self.processes()}\n{self.log()}")


def python_environment() -> dict[str, str]:
    """For processes of ours: no settings from outside, and modules compiled once.

    Where the environment forbids writing byte code, every process would compile everything again; a third of a second
    each.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("APPLIANCE_")}
    if clean.pop("PYTHONDONTWRITEBYTECODE", ""):
        clean["PYTHONPYCACHEPREFIX"] = str(REPO / ".cache" / "bytecode")
    return clean


def _readline(process: subprocess.Popen[bytes], timeout_s: float) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not received.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                break
            piece = os.read(process.stdout.fileno(), 65536)
            if not piece:
                break
            received += piece
    return received.decode()


def wait_for(condition: Callable[[], Any], timeout_s: float, explain: Callable[[], str] = lambda: "") -> Any:
    """The first true value of the condition; fails after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s. {explain()}"
        time.sleep(0.02)
    return value
