"""The helper process that compacts logs: `python -m appliance.broker_actors.log_cleaner_process <name>`.

The broker sends `{"log_level": str}`, then any number of `{"job": base64 of a pickle}`. For each job this process
reports `{"cleaned": …}` per finished segment, and at the end `{"done": …}` or `{"failed": …, "is_damage": bool}`.
It ends when the broker hangs up, and at once when the broker dies.
"""

from __future__ import annotations

import base64
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from dataclasses import asdict

from appliance.base.clock import SystemClock
from appliance.base.disk import SystemDisk
from appliance.broker_actors.logs import log_to_standard_error
from appliance.broker_actors.parent_line import ParentLine
from appliance.log.cleaner import CleaningJob, CleaningRound, Throttle
from appliance.records.errors import CorruptBatch

_log = logging.getLogger("appliance.broker_actors.log_cleaner_process")

LOWER_PRIORITY = 5
"""Brokers come first where cores are few."""


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = ParentLine()
    first = line.read()
    if first is None:
        return 0
    log_to_standard_error(sys.argv[1], first["log_level"])
    os.nice(LOWER_PRIORITY)
    jobs: queue.SimpleQueue[CleaningJob] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(line, jobs), name="parent-line", daemon=True).start()
    while True:
        _clean(jobs.get(), line)


def _listen(line: ParentLine, jobs: queue.SimpleQueue[CleaningJob]) -> None:
    while (message := line.read()) is not None:
        jobs.put(pickle.loads(base64.b64decode(message["job"])))
    # Nobody would take what is cleaned from here on; what is half done is removed by whoever comes next.
    os._exit(0)


def _clean(job: CleaningJob, line: ParentLine) -> None:
    clock = SystemClock()
    throttle = Throttle(clock, time.sleep, job.max_bytes_per_second)
    round_ = CleaningRound(job, SystemDisk(), throttle)
    started_ms = clock.monotonic_ms()
    try:
        for cleaned in round_.run():
            line.report(cleaned=cleaned._asdict())
    except (CorruptBatch, MemoryError) as error:
        line.report(failed=f"{type(error).__name__}: {error}", is_damage=True)
    except OSError as error:
        line.report(failed=str(error), is_damage=False)
    except Exception as error:
        _log.exception("cleaning %s failed", job.directory)
        line.report(failed=f"{type(error).__name__}: {error}", is_damage=True)
    else:
        took_ms = clock.monotonic_ms() - started_ms
        line.report(done=round_.end_offset, stats=asdict(round_.stats), took_ms=took_ms)


if __name__ == "__main__":
    sys.exit(main())
