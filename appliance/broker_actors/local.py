"""The local runtime: every process is a plain child in a session of its own. No Ray, and quick to start."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import appliance
from appliance.base.errors import UserError
from appliance.broker_actors.runtime import EXIT_CRASHED, Post, ProcessEnded, ProcessReady, ProcessSpec

CLOSE_TIMEOUT_S = 2.0
"""How long a killed process may take to be gone."""

_log = logging.getLogger(__name__)
_ROOT = str(Path(appliance.__file__).resolve().parents[1])


class LocalRuntime:
    """Starts child processes. Each has two pipes: commands down, reports up. A closed pipe tells that one side is gone.

    Args:
        post: takes what becomes of the processes; called on threads of the runtime's own.
        log_level: for the children's logs.
        inherit: descriptors that every child keeps open, for instance a lock that must outlive the parent.
    """

    name = "local"

    def __init__(self, post: Post, log_level: str = "info", inherit: tuple[int, ...] = ()) -> None:
        self._post = post
        self._log_level = log_level
        self._inherit = inherit
        self._children: dict[str, _Child] = {}
        self._closed = False

    def warm(self, name: str, target: str) -> None:
        self._children[name] = _Child(name, target, self)

    def start(self, spec: ProcessSpec) -> None:
        child = self._children.get(spec.name)
        if child is None or child.used or child.target != spec.target:
            child = self._children[spec.name] = _Child(spec.name, spec.target, self)
        child.begin(spec.settings)

    def stop(self, name: str) -> None:
        if child := self._children.get(name):
            child.stop()

    def kill(self, name: str) -> None:
        if child := self._children.get(name):
            child.kill()

    def close(self) -> None:
        self._closed = True
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.watcher.join(CLOSE_TIMEOUT_S)

    def environment(self) -> dict[str, str]:
        """A child's environment: it must find the same package, wherever this process was started from."""
        inherited = os.environ.get("PYTHONPATH", "")
        return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in (_ROOT, inherited) if part)}

    @property
    def log_level(self) -> str:
        return self._log_level

    @property
    def inherit(self) -> tuple[int, ...]:
        return self._inherit

    def report(self, event: ProcessReady | ProcessEnded) -> None:
        if not self._closed:
            self._post(event)


class _Child:
    """One child process and the thread that listens to it."""

    def __init__(self, name: str, target: str, runtime: LocalRuntime) -> None:
        self.name = name
        self.target = target
        self.used = False
        self._runtime = runtime
        self._stopping = False
        try:
            self._process = subprocess.Popen(
                # -P: the folder in which the appliance is started must not hide modules.
                [sys.executable, "-P", "-m", "appliance.broker_actors.local_process", name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=runtime.environment(),
                pass_fds=runtime.inherit,
            )
        except OSError as error:
            raise UserError(f"cannot start {name}: {error.strerror}", exit_code=EXIT_CRASHED) from error
        self._send(target=target, log_level=runtime.log_level)
        self.watcher = threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True)
        self.watcher.start()

    def begin(self, settings: Any) -> None:
        self.used = True
        self._send(settings=base64.b64encode(pickle.dumps(settings)).decode("ascii"))

    def stop(self) -> None:
        self._stopping = True
        if self.used:
            self._send(stop=True)
        else:
            self._close_input()

    def kill(self) -> None:
        """The whole group: it also takes along what the child started."""
        self._stopping = True
        if self._process.returncode is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _send(self, **message: object) -> None:
        stream = self._process.stdin
        if stream is None or stream.closed:
            return
        try:
            stream.write(json.dumps(message).encode() + b"\n")
            stream.flush()
        except OSError:
            pass  # the child is gone; its watcher reports that

    def _close_input(self) -> None:
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
        except OSError:
            pass

    def _watch(self) -> None:
        message, exit_code = "", None
        reports = self._process.stdout
        for line in reports if reports is not None else ():
            report = json.loads(line)
            if "ready" in report:
                self._runtime.report(ProcessReady(self.name, report["ready"], self._process.pid))
            else:
                message, exit_code = report["failed"], report["exit_code"]
        status = self._wait()
        self._close_input()
        if not message and status < 0:
            message = f"{self.name} was killed by {_signal_name(-status)}"
        elif not message and not self._stopping:
            message = f"{self.name} ended with exit code {status}"
        if self._stopping and status == -signal.SIGKILL:
            message = ""
        self._runtime.report(ProcessEnded(self.name, message, status if exit_code is None else exit_code))

    def _wait(self) -> int:
        """The exit status. What the child itself started goes with it."""
        if hasattr(os, "waitid"):
            # Not reaped yet, so that the number of its group cannot belong to anybody else.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
