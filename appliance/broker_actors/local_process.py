"""The inside of a child process of the local runtime: `python -m appliance.broker_actors.local_process <name>`.

Standard input is the line from the parent, one JSON object a line: first `{"target": str, "log_level": str}`, then
`{"settings": base64 of a pickle}`, later `{"stop": true}`. Its end means that the parent is gone. Standard output is
the line back: `{"ready": address}` and `{"failed": message, "exit_code": int}`. What is printed by mistake goes to
standard error.

The parent alone handles SIGINT. SIGTERM sent to the child itself drains it, and the supervisor starts it again.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import pickle
import signal
import sys
import threading
from typing import IO, Any

from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle
from appliance.broker_actors.logs import log_to_standard_error
from appliance.broker_actors.runtime import EXIT_CRASHED, EXIT_NOT_INSTALLED, resolve_target

ORPHAN_GRACE_MS = 5_000
"""How long a process whose parent is gone may drain before it ends at once."""

_log = logging.getLogger(__name__)


class ParentLine:
    """Both directions between this process and its parent."""

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
        try:
            self._reports.write(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the parent is gone; the reading side notices and ends this process


def main() -> int:
    name = sys.argv[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = ParentLine()
    first = line.read()
    if first is None:
        return 0
    log_to_standard_error(name, first["log_level"])
    try:
        run = resolve_target(first["target"])
    except Exception as error:
        exit_code = EXIT_NOT_INSTALLED if isinstance(error, ImportError) else EXIT_CRASHED
        _log.debug("%s cannot be loaded", name, exc_info=True)
        line.report(failed=f"{name} cannot be loaded: {type(error).__name__}: {error}", exit_code=exit_code)
        return exit_code
    second = line.read()
    if second is None or "settings" not in second:
        return 0
    settings = pickle.loads(base64.b64decode(second["settings"]))

    handle = ProcessHandle(on_ready=lambda address: line.report(ready=address))
    signal.signal(signal.SIGTERM, lambda signum, frame: handle.stopping.set())
    threading.Thread(target=_obey, args=(line, handle), name="parent-line", daemon=True).start()
    try:
        run(settings, handle)
    except UserError as error:
        _log.error("%s", error)
        line.report(failed=str(error), exit_code=error.exit_code)
        return error.exit_code
    except BaseException as error:
        _log.exception("%s crashed", name)
        line.report(failed=f"{name} crashed: {type(error).__name__}: {error}", exit_code=EXIT_CRASHED)
        return EXIT_CRASHED
    return 0


def _obey(line: ParentLine, handle: ProcessHandle) -> None:
    while (command := line.read()) is not None:
        if "stop" in command:
            handle.stopping.set()
    # The parent is gone, so nobody else ends this process: drain, but not for long.
    handle.stopping.set()
    timer = threading.Timer(ORPHAN_GRACE_MS / 1000, os._exit, args=(EXIT_CRASHED,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
