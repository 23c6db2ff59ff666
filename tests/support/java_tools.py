"""Apache Kafka's command-line tools, each in a JVM of its own: run to their end, or kept running and listened to."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

from tests.support.kafka_jars import java_command

TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 60
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A tool lives for a second: its JVM compiles little and collects nothing."""


def tool(name: str, *arguments: str, stdin: str = "", code: int = 0) -> str:
    """What it wrote to standard output; to standard error too where it has to fail.

    Args:
        name: of the class, in TOOLS unless it says another package.
        code: the exit code that it must end with.
    """
    command = java_command(_class(name), *arguments, options=QUICK_START)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == code, f"{name} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout if code == 0 else done.stdout + done.stderr


def _class(name: str) -> str:
    """A class; a file of source is compiled as it starts."""
    return name if name.startswith(("org.", "kafka.", "/")) else f"{TOOLS}.{name}"


class RunningTool:
    """A tool that tells of itself in JSON, one object in each line: VerifiableProducer and VerifiableConsumer."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._errors: list[str] = []
        command = java_command(_class(name), *arguments, options=QUICK_START)
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def of(self, name: str) -> list[dict[str, Any]]:
        """All events of this name until now."""
        return [event for event in list(self.events) if event["name"] == name]

    def stop(self) -> None:
        """As with Ctrl-C; it says goodbye to its group."""
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(TIMEOUT_S)

    @property
    def code(self) -> int | None:
        """The code that it ended with; None while it runs."""
        return self._process.poll()

    @property
    def errors(self) -> str:
        """What it wrote to standard error."""
        return "".join(self._errors)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)
