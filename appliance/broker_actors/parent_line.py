"""The line between a child process and its parent, seen from the child; `child_line.py` is the other end."""

from __future__ import annotations

import json
import os
import threading
from typing import IO, Any

from appliance.broker_actors.runtime import EXIT_CRASHED

ORPHAN_GRACE_MS = 5_000
"""How long a process whose parent is gone may drain before it ends at once."""


class ParentLine:
    """Takes standard input and output of this process for itself: what is printed by mistake goes to standard error."""

    def __init__(self) -> None:
        # Private copies, closed on exec: what this process starts must neither hold nor read them.
        self._commands: IO[bytes] = os.fdopen(os.dup(0), "rb")
        self._reports: IO[bytes] = os.fdopen(os.dup(1), "wb", buffering=0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def read(self) -> dict[str, Any] | None:
        """The parent's next message, or None when the parent is gone."""
        line = self._commands.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def report(self, **message: object) -> None:
        """Send a message. To a parent that is gone: nothing; whoever reads notices and ends this process."""
        try:
            self._reports.write(json.dumps(message).encode() + b"\n")
        except OSError:
            pass


def end_soon() -> None:
    """The parent is gone, so nobody else would end this process: it may drain, but not for long."""
    timer = threading.Timer(ORPHAN_GRACE_MS / 1000, os._exit, args=(EXIT_CRASHED,))
    timer.daemon = True
    timer.start()
