"""Controllers and brokers as processes of their own, for tests that kill them.

Run as a program it serves one of them: `python -m tests.support.broker_process broker '{json of the settings}'`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from appliance.base.processes import BrokerSettings, ControllerSettings, ProcessHandle

READY_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20


class PartProcess:
    """A controller or a broker in a process, which ends with the test that started it."""

    def __init__(self, settings: ControllerSettings | BrokerSettings, log: Path) -> None:
        kind = "controller" if isinstance(settings, ControllerSettings) else "broker"
        text = json.dumps(dataclasses.asdict(settings), default=str)
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.broker_process", kind, text],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self.address = ""

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not self.address:
                assert selector.select(max(0.0, deadline - time.monotonic())), f"not ready: {self._log.read_text()}"
                line = self.process.stdout.readline().decode()
                assert line, f"ended before it was ready: {self._log.read_text()}"
                if line.startswith("READY "):
                    self.address = line.split()[1]

    def kill(self) -> None:
        """As the kernel would: no time for last words."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)
        self._close()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self._close()
        assert self.process.returncode in (0, -signal.SIGKILL), self._log.read_text()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def serve(kind: str, settings: dict[str, Any]) -> None:
    """Run one part until SIGTERM, or until the parent is gone."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    handle = ProcessHandle(lambda address: print(f"READY {address}", flush=True))
    signal.signal(signal.SIGTERM, lambda *_: handle.stopping.set())

    def end_with_parent() -> None:
        # The parent never writes: this returns when it has closed its end, or has died.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if kind == "controller":
        from appliance.broker_actors.controller import run_controller

        run_controller(ControllerSettings(**settings), handle)
    else:
        from appliance.broker_actors.broker_process import run_broker

        settings["data_dir"] = Path(settings["data_dir"])
        settings["log_dirs"] = [Path(folder) for folder in settings.get("log_dirs", ())]
        run_broker(BrokerSettings(**settings), handle)


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
