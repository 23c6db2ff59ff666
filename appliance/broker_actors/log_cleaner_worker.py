"""A helper process that compacts, as the broker's loop sees it: started when it is needed, ended when it is idle."""

from __future__ import annotations

import base64
import logging
import pickle
from collections.abc import Callable
from typing import Any, Protocol

from appliance.base.background import Background
from appliance.broker_actors.child_line import ChildLine
from appliance.log.cleaner import CleaningJob

_log = logging.getLogger(__name__)

MODULE = "appliance.broker_actors.log_cleaner_process"

Report = dict[str, Any]


class Worker(Protocol):
    """One helper. Reports come on the loop; the last of a job has `done` or `failed`."""

    @property
    def is_busy(self) -> bool: ...

    def clean(self, job: CleaningJob, on_report: Callable[[Report], None]) -> None: ...

    def rest(self) -> None:
        """Nothing was to be done for long: let the process end."""

    def close(self) -> None: ...


CLOSE_TIMEOUT_S = 5.0


class ProcessWorker:
    """A worker in a process of its own."""

    def __init__(self, number: int, broker_id: int, background: Background) -> None:
        self._name = f"log-cleaner-{broker_id}-{number}"
        self._background = background
        self._line: ChildLine | None = None
        self._on_report: Callable[[Report], None] | None = None
        self._closed = False

    @property
    def is_busy(self) -> bool:
        return self._on_report is not None

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._line is None else self._line.pid

    def clean(self, job: CleaningJob, on_report: Callable[[Report], None]) -> None:
        """Start a job; `is_busy` until its last report."""
        self._on_report = on_report

        def send() -> None:
            # A new process takes a moment to listen, and a pipe holds little.
            line = self._line or self._start()
            line.send(job=base64.b64encode(pickle.dumps(job)).decode())

        def sent(result: Exception | None) -> None:
            if result is not None:
                self._take(self._line, {"failed": str(result), "is_damage": False})

        self._background.run(send, sent)

    def _start(self) -> ChildLine:
        """Runs in a helper thread."""
        holder: list[ChildLine] = []

        def on_message(message: Report) -> None:
            self._background.post(lambda: self._take(holder[0], message))

        def on_end(status: int) -> None:
            self._background.post(lambda: self._ended(holder[0], status))

        line = ChildLine(MODULE, self._name, on_message, on_end)
        holder.append(line)
        self._line = line
        if self._closed:
            line.kill()
        level = logging.getLevelName(logging.getLogger().getEffectiveLevel()).lower()
        line.send(log_level=level)
        return line

    def _take(self, line: ChildLine | None, message: Report) -> None:
        report = self._on_report
        if report is None or line is not self._line:
            return
        if "cleaned" not in message:
            self._on_report = None
        report(message)

    def _ended(self, line: ChildLine, status: int) -> None:
        if line is not self._line:
            return
        self._line = None
        report, self._on_report = self._on_report, None
        if report is not None:
            _log.error("%s ended with %d", self._name, status)
            report({"failed": f"the helper process ended with {status}", "is_damage": False, "has_died": True})

    def rest(self) -> None:
        if self._line is not None and not self.is_busy:
            line, self._line = self._line, None
            line.hang_up()

    def close(self) -> None:
        """End it at once; what it has half done is removed at the next start."""
        self._closed = True
        self._on_report = None
        if self._line is not None:
            self._line.kill()
            self._line.join(CLOSE_TIMEOUT_S)
