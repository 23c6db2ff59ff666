"""A child process with two pipes, seen from the parent: JSON lines down its standard input, JSON lines up its output.

The child's end of the line is `ParentLine` in `parent_line.py`. A closed pipe tells either side that the other is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import appliance
from appliance.base.errors import UserError
from appliance.broker_actors.runtime import EXIT_CRASHED

_ROOT = str(Path(appliance.__file__).resolve().parents[1])


class ChildLine:
    """Starts `python -m <module> <name>` in a session of its own and listens to it on a thread.

    Args:
        on_message: takes each line that the child sends; called on the thread.
        on_end: takes the exit status (negative: the signal), once; called on the thread when the child and what was
            left of its process group are gone.
        inherit: descriptors that the child keeps open.
        environment: for the child, beside this process's own.

    Raises:
        UserError: it cannot be started.
    """

    def __init__(
        self,
        module: str,
        name: str,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[int], None],
        *,
        inherit: tuple[int, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        try:
            self._process = subprocess.Popen(
                # -P: the folder in which the appliance is started must not hide modules.
                [sys.executable, "-P", "-m", module, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": _python_path(), **(environment or {})},
                pass_fds=inherit,
            )
        except OSError as error:
            raise UserError(f"cannot start {name}: {error.strerror}", exit_code=EXIT_CRASHED) from error
        self.pid = self._process.pid
        self._watcher = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)
        self._watcher.start()

    def send(self, **message: object) -> None:
        """Send a line. To a child that is gone: nothing; `on_end` tells of that."""
        stream = self._process.stdin
        if stream is None or stream.closed:
            return
        try:
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()
        except (OSError, ValueError):
            pass

    def hang_up(self) -> None:
        """Close the line; the child takes that as the end of its parent."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """End the child and everything in its process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end; whether it has come."""
        self._watcher.join(timeout_s)
        return not self._watcher.is_alive()

    def _watch(self) -> None:
        stream = self._process.stdout
        for line in stream if stream is not None else ():
            if line.endswith(b"\n"):
                self._on_message(json.loads(line))
        status = self._reap()
        self.hang_up()
        self._on_end(status)

    def _reap(self) -> int:
        if hasattr(os, "waitid"):
            # Not reaped yet, so that the number of its group cannot belong to anybody else.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return self._process.wait()


def _python_path() -> str:
    """The child must find the same package, wherever this process was started from."""
    inherited = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(part for part in (_ROOT, inherited) if part)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
