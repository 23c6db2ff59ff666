"""The local runtime: every process is a plain child in a session of its own. No Ray, and quick to start."""

from __future__ import annotations

import base64
import pickle
import signal
from typing import Any

from appliance.broker_actors.child_line import ChildLine, signal_name
from appliance.broker_actors.runtime import Post, ProcessEnded, ProcessReady, ProcessSpec, ProcessWorking

CLOSE_TIMEOUT_S = 2.0
"""How long killed processes may take to be gone."""


class LocalRuntime:
    """Starts child processes.

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

    def warm(self, name: str, target: str) -> None:
        self._children[name] = _Child(name, target, self._log_level, self._inherit, self._post)

    def start(self, spec: ProcessSpec) -> None:
        child = self._children.get(spec.name)
        if child is None or child.used or child.target != spec.target:
            self.warm(spec.name, spec.target)
            child = self._children[spec.name]
        child.begin(spec.settings)

    def stop(self, name: str) -> None:
        if child := self._children.get(name):
            child.stop()

    def kill(self, name: str) -> None:
        if child := self._children.get(name):
            child.kill()

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.line.join(CLOSE_TIMEOUT_S)


class _Child:
    """One child process: first it loads its code, then it is told what to do, once."""

    def __init__(self, name: str, target: str, log_level: str, inherit: tuple[int, ...], post: Post) -> None:
        self.name = name
        self.target = target
        self.used = False
        self._post = post
        self._stopping = False
        self._failure = ""
        self._exit_code: int | None = None
        self.line = ChildLine(
            "appliance.broker_actors.local_process", name, self._on_message, self._on_end, inherit=inherit
        )
        self.line.send(target=target, log_level=log_level)

    def begin(self, settings: Any) -> None:
        self.used = True
        self.line.send(settings=base64.b64encode(pickle.dumps(settings)).decode("ascii"))

    def stop(self) -> None:
        self._stopping = True
        if self.used:
            self.line.send(stop=True)
        else:
            self.line.hang_up()

    def kill(self) -> None:
        self._stopping = True
        self.line.kill()

    def _on_message(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._post(ProcessReady(self.name, message["ready"], self.line.pid))
        elif "working" in message:
            self._post(ProcessWorking(self.name))
        else:
            self._failure, self._exit_code = message["failed"], message["exit_code"]

    def _on_end(self, status: int) -> None:
        failure = self._failure
        if not failure and status < 0 and not (self._stopping and status == -signal.SIGKILL):
            failure = f"{self.name} was killed by {signal_name(-status)}"
        elif not failure and status > 0:
            failure = f"{self.name} ended with exit code {status}"
        self._post(ProcessEnded(self.name, failure, status if self._exit_code is None else self._exit_code))
