"""Where tasks run: in child processes, or in Ray actors. Both give the supervisor the same handle."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
from typing import Any, Protocol

from connectors.runtime.running import run_task
from connectors.runtime.tasks import UNASSIGNED, TaskReport, TaskSpec

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0
RAY_CALL_TIMEOUT_S = 5.0


class TaskHandle(Protocol):
    """One started task."""

    def report(self) -> TaskReport:
        """The newest report."""

    def is_alive(self) -> bool:
        """Whether the process is still there; a task that failed by itself ends once it has reported."""

    def stop(self) -> None:
        """Let it finish what it has in hand, for at most `STOP_TIMEOUT_S`; then end it."""


class Launcher(Protocol):
    def start(self, spec: TaskSpec) -> TaskHandle: ...


class LocalLauncher:
    """A child process for each task."""

    def start(self, spec: TaskSpec) -> TaskHandle:
        return _ChildTask(spec)


class _ChildTask:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._newest = TaskReport(UNASSIGNED)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "connectors.runtime.running"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec.as_dict()).encode() + b"\n")
        self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, name=f"task-{spec.connector}-{spec.task_id}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def report(self) -> TaskReport:
        return self._newest

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log.warning("task %s-%d did not end in time", self._spec.connector, self._spec.task_id)
            self._process.kill()
            self._process.wait()
        self._reader.join(1)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._newest = TaskReport.of(json.loads(line))


class TaskActorBody:
    """What runs in a Ray actor: the task on a thread of its own, so that the actor answers meanwhile."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = TaskSpec.of(spec)
        self._newest = TaskReport(UNASSIGNED)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=run_task, args=(self._spec, self._stopping, self._remember), name="task", daemon=True
        )
        self._thread.start()

    def report(self) -> dict[str, Any]:
        return self._newest.as_dict()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)

    def _remember(self, report: TaskReport) -> None:
        self._newest = report


class RayLauncher:
    """A Ray actor for each task. Restarts are the supervisor's: it knows whether a task is still wanted."""

    def start(self, spec: TaskSpec) -> TaskHandle:
        import ray

        actor = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)(TaskActorBody)
        return _RayTask(actor.remote(spec.as_dict()))


class _RayTask:
    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._newest = TaskReport(UNASSIGNED)
        self._alive = True

    def report(self) -> TaskReport:
        return self._newest

    def is_alive(self) -> bool:
        import ray

        if not self._alive:
            return False
        try:
            self._newest = TaskReport.of(ray.get(self._actor.report.remote(), timeout=RAY_CALL_TIMEOUT_S))
        except ray.exceptions.GetTimeoutError:
            # Starting, or the node is busy; Ray says so itself when the actor is gone.
            return True
        except ray.exceptions.RayActorError:
            self._alive = False
        return self._alive

    def stop(self) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.stop.remote(), timeout=STOP_TIMEOUT_S + RAY_CALL_TIMEOUT_S)
        ray.kill(self._actor)
        self._alive = False


def launcher_for(runtime: str) -> Launcher:
    """`ray` or `local`."""
    return RayLauncher() if runtime == "ray" else LocalLauncher()
