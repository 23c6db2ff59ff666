"""One task from its spec to its end, wherever it runs; and the process of `--runtime local` around it."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback

from connectors.api import Connector
from connectors.plugins import connector_class
from connectors.runtime.tasks import FAILED, Report, TaskReport, TaskSpec

log = logging.getLogger(__name__)


def run_task(spec: TaskSpec, stopping: threading.Event, report: Report) -> None:
    """Run a task until `stopping`; a failure is reported, never raised."""
    newest = TaskReport(FAILED)

    def remember(told: TaskReport) -> None:
        nonlocal newest
        newest = told
        report(told)

    try:
        kind: type[Connector] = connector_class(spec.config["connector.class"])
        if kind.kind == "source":
            from connectors.runtime.source_loop import run_source_task

            run_source_task(spec, stopping, remember)
        else:
            from connectors.runtime.sink_loop import run_sink_task

            run_sink_task(spec, stopping, remember)
    except Exception:
        trace = traceback.format_exc()
        log.error("task %s-%d failed\n%s", spec.connector, spec.task_id, trace)
        report(TaskReport(FAILED, trace, newest.records, newest.tiered_records))


def main() -> None:
    """A task as a child process: its spec is the first line of standard input, reports are lines of standard output.

    The end of standard input means stop, also when the parent died without a word.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    spec = TaskSpec.of(json.loads(sys.stdin.readline()))
    stopping = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=watch, name="parent", daemon=True).start()
    lock = threading.Lock()

    def report(told: TaskReport) -> None:
        line = json.dumps(told.as_dict()) + "\n"
        with lock:
            try:
                os.write(1, line.encode())
            except BrokenPipeError:
                stopping.set()

    run_task(spec, stopping, report)


if __name__ == "__main__":
    main()
