"""A Spark cluster of processes: a master, and a worker that starts executors as programs ask for them.

with SparkCluster(folder) as cluster:
    session = spark_session("mine", **cluster.config)
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

from tests.support.java_tools import QUICK_START
from tests.support.ports import free_port
from tests.support.repo import REPO

READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30
CORES = 2
EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """A context manager. Each executor has one core; one that dies is started anew."""

    def __init__(self, folder: Path) -> None:
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def config(self) -> dict[str, str]:
        """For `spark_session`. Executors take the package from where this Python has it, and the tests from here."""
        options = " ".join(QUICK_START)
        return {
            "spark__master": self.url,
            "spark__executor__cores": "1",
            "spark__executor__memory": "512m",
            "spark__cores__max": str(CORES),
            "spark__driver__extraJavaOptions": options,
            "spark__executor__extraJavaOptions": options,
            "spark__executorEnv__PYTHONPATH": str(REPO),
        }

    def __enter__(self) -> SparkCluster:
        _, host, port = self.url.replace("//", "").split(":")
        try:
            self._start("Master", "--host", host, "--port", port)
            self._wait_for("Master", r"New state: ALIVE")
            memory = ("--cores", str(CORES), "--memory", "2g", "--work-dir", str(self._folder / "work"))
            self._start("Worker", "--host", host, *memory, self.url)
            self._wait_for("Worker", r"registered with master")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _start(self, part: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(QUICK_START),
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), f"org.apache.spark.deploy.{part.lower()}.{part}", *arguments, "--webui-port", "0"]
        with (self._folder / f"{part}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)

    def _wait_for(self, part: str, line: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        log = self._folder / f"{part}.log"
        while not re.search(line, log.read_text()):
            assert self._processes[-1].poll() is None and time.monotonic() < deadline, log.read_text()[-3_000:]
            time.sleep(0.1)

    def _stop(self) -> None:
        # The worker first: it ends its executors.
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_S)


def executor_of(pid: int) -> int:
    """The executor that a process of a worker in Python belongs to."""
    while EXECUTOR not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, "no executor is above this process"
    return pid
