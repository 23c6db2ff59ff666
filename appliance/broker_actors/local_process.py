"""The inside of a child process of the local runtime: `python -m appliance.broker_actors.local_process <name>`.

The parent sends `{"target": str, "log_level": str}`, then `{"settings": base64 of a pickle}`, later `{"stop": true}`.
This process reports `{"ready": address}`, `{"working": true}` now and then while it drains, and
`{"failed": message, "exit_code": int}`.

The parent alone handles SIGINT. SIGTERM sent to the child itself drains it, and the supervisor starts it again.
"""

from __future__ import annotations

import base64
import logging
import pickle
import signal
import sys
import threading

from appliance.base.errors import UserError
from appliance.base.processes import ProcessHandle
from appliance.broker_actors.logs import log_to_standard_error
from appliance.broker_actors.parent_line import ParentLine, end_soon
from appliance.broker_actors.runtime import EXIT_CRASHED, EXIT_NOT_INSTALLED, resolve_target

_log = logging.getLogger("appliance.broker_actors.local_process")


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

    handle = ProcessHandle(
        on_ready=lambda address: line.report(ready=address), on_working=lambda: line.report(working=True)
    )
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
    handle.stopping.set()
    end_soon()


if __name__ == "__main__":
    sys.exit(main())
