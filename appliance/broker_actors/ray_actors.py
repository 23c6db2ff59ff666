"""The inside of an actor: the same blocking functions as in a plain process, on a thread of their own.

Ray's own loop stays free to answer `watch`. Nothing here imports Ray: the class becomes an actor in `ray_cluster.py`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from dataclasses import dataclass

from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle
from appliance.broker_actors.logs import log_to_standard_error
from appliance.broker_actors.runtime import EXIT_CRASHED, EXIT_NOT_INSTALLED, ProcessSpec, resolve_target

HEAD_LOOK_S = 2.0
HEAD_MISSES = 2
"""So many looks in a row tell that the head is away."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActorState:
    """What is known of the function that an actor runs."""

    version: int
    """Rises with every change."""
    pid: int
    address: str
    """Empty until it serves."""
    ended: bool
    failure: str
    exit_code: int


class HeadWatch:
    """Looks now and then whether Ray's head takes connections. Brokers do without it; restarts do not."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._misses = 0
        if address:
            threading.Thread(target=self._run, name="head-watch", daemon=True).start()

    def problem(self) -> str:
        if self._misses < HEAD_MISSES:
            return ""
        return f"Ray's head at {self._address} does not answer: what ends is not started again until it does"

    def _run(self) -> None:
        while True:
            time.sleep(HEAD_LOOK_S)
            host, _, port = self._address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=HEAD_LOOK_S).close()
                self._misses = 0
            except OSError:
                self._misses += 1


class ProcessActor:
    """Runs one process of the appliance. Ray makes it anew, with the same arguments, when its worker dies."""

    def __init__(self, spec: ProcessSpec, log_level: str, head: str = "") -> None:
        log_to_standard_error(spec.name, log_level)
        self._spec = spec
        self._head = HeadWatch(head)
        self._handle = ProcessHandle(on_ready=self._on_ready, runtime_problem=self._head.problem)
        self._changed = threading.Condition()
        self._state = ActorState(version=1, pid=os.getpid(), address="", ended=False, failure="", exit_code=0)
        threading.Thread(target=self._run, name=spec.name, daemon=True).start()

    def ping(self) -> ActorState:
        return self._state

    def spec(self) -> ProcessSpec:
        """What this actor was made to run."""
        return self._spec

    def watch(self, pid: int, version: int, timeout_s: float) -> ActorState:
        """The state, as soon as it is another than the one known (of this process, in this version)."""
        with self._changed:
            self._changed.wait_for(lambda: (pid, version) != (self._state.pid, self._state.version), timeout_s)
            return self._state

    def ready(self, timeout_s: float) -> str:
        """The address that is served; empty if it is not served within the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.address != "" or self._state.ended, timeout_s)
            return self._state.address

    def drain(self) -> None:
        """Tell the function to finish what is under way and return; `watch` sees its end."""
        self._handle.stopping.set()

    def _run(self) -> None:
        failure, exit_code = "", 0
        try:
            run = resolve_target(self._spec.target)
            run(self._spec.settings, self._handle)
        except UserError as error:
            failure, exit_code = str(error), error.exit_code
        except ImportError as error:
            failure = f"{self._spec.name} cannot be loaded: {type(error).__name__}: {error}"
            exit_code = EXIT_NOT_INSTALLED
        except BaseException as error:
            _log.exception("%s crashed", self._spec.name)
            failure, exit_code = f"{self._spec.name} crashed: {type(error).__name__}: {error}", EXIT_CRASHED
        self._change(address="", ended=True, failure=failure, exit_code=exit_code)

    def _on_ready(self, address: str) -> None:
        self._change(address=address, ended=False, failure="", exit_code=0)

    def _change(self, *, address: str, ended: bool, failure: str, exit_code: int) -> None:
        with self._changed:
            self._state = ActorState(self._state.version + 1, self._state.pid, address, ended, failure, exit_code)
            self._changed.notify_all()
