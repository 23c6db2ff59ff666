"""`make demo` as a user sees it: everything is shown, it is true, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.repo import REPO

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

STAYS_UP = "The appliance stays up"
MARK = "DEMO_TEST_MARK"


class Demo:
    """A running demo; its output so far is `text`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, "PYTHONPATH": str(REPO), MARK: self.mark, "COLUMNS": "120"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.demo", *flags],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for_text(self, wanted: str, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while wanted not in self.text:
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.text}"
            assert time.monotonic() < deadline_s, f"{wanted!r} did not come\n{self.text}"
            time.sleep(0.1)

    def wait(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(10)
        return code

    def processes(self) -> list[int]:
        """Every living process that descends from the demo, told by its environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line


@contextmanager
def demo(folder: Path, *flags: str) -> Iterator[Demo]:
    running = Demo(folder, *flags)
    try:
        yield running
    finally:
        for pid in running.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        running.process.wait(10)


def check(text: str) -> None:
    for topic, count in (("flights", "336,776"), ("weather", "26,115"), ("planes", "3,322"), ("airlines", "16")):
        (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == [topic] and len(line.split()) == 5]
        assert row[3:] == [count, count]
        tiered, hot = (int(cell.replace(",", "")) for cell in row[1:3])
        assert hot > 0
        if topic == "flights":
            assert tiered > hot, "most flights come from the object store"
    (partition,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["flights-0"]]
    start, local_start, tiered_end, end = (int(cell.replace(",", "")) for cell in partition[1:])
    assert start == 0 < local_start <= tiered_end <= end
    assert "equal to the input files, every count and every mean" in text
    assert "kcat -b" in text and "curl -s http" in text and "confluent_kafka" in text and "spark_session" in text


def test_the_demo_on_ray_stays_up_and_ends_cleanly_on_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        running.wait_for_text(STAYS_UP, 800)
        check(running.text)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.wait(60) == 0, running.text
        assert running.processes() == []
    assert (tmp_path / ".demo" / "data" / "object-store" / "tier").is_dir()


def test_the_demo_ends_by_itself_when_asked_to_and_takes_free_ports(tmp_path: Path) -> None:
    (tmp_path / ".demo").mkdir()
    (tmp_path / ".demo" / "left over").touch()
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            busy.bind(("127.0.0.1", 9092))
            busy.listen()
        except OSError:
            pass  # somebody else has it: as good
        with demo(tmp_path, "--once", "--runtime", "local") as running:
            assert running.wait(800) == 0, running.text
            check(running.text)
            assert "127.0.0.1:9092" not in running.text
            assert running.processes() == []
    assert not (tmp_path / ".demo" / "left over").exists()
