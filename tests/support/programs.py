"""Programs in other languages, each with a client that tests let loose on a server.

Their sources lie beside the tests. They are built on first use into `.cache/programs/`, under a name that changes with
the sources, by the ordinary tool of their language, which must be on PATH: without it the calling test skips. A program
is called as `program BOOTSTRAP_SERVERS SCENARIO [JSON]` and tells of itself on standard output, one JSON object a line.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.java import find_java
from tests.support.kafka_peer import die_with_parent
from tests.support.repo import REPO

PROGRAMS = REPO / ".cache" / "programs"
BUILD_TIMEOUT_S = 900
BUILD_TRIES = 2
RUN_TIMEOUT_S = 240
OUR_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_CRATES = "registry+https://github.com/rust-lang/" + "crates" + ".io-index"

needs_a_build = pytest.mark.timeout(BUILD_TIMEOUT_S + 120)
"""For tests whose program may have to be built first."""


def node_program(folder: Path) -> list[str]:
    """`main.js` with the packages of its lock."""
    node, npm = _on_path("node"), _on_path("npm")
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier")
    built = _built(folder, lambda at: _run(at, npm, "ci", "--ignore-scripts", *quiet))
    return [node, str(built / "main.js")]


def go_program(folder: Path) -> list[str]:
    go = _on_path("go")
    _refuse_older_go(go, folder)
    built = _built(folder, lambda at: _run(at, go, "build", "-p", "2", "-mod=readonly", "-o", "program", "."))
    return [str(built / "program")]


def rust_program(folder: Path) -> list[str]:
    """The lock names no registry: what has a checksum comes from the one that is cargo's default."""
    cargo = _on_path("cargo")

    def build(at: Path) -> None:
        lock = at / "Cargo.lock"
        lock.write_text(re.sub(r"^(checksum = )", f'source = "{_CRATES}"\n\\1', lock.read_text(), flags=re.MULTILINE))
        # What it is made of stays there, so that a change of our few lines does not build all of it again.
        target = PROGRAMS / f"{folder.name}-target"
        _run(at, cargo, "build", "--locked", "--quiet", "--jobs", "2", "--target-dir", str(target))
        shutil.copy(target / "debug" / "program", at / "program")

    return [str(_built(folder, build) / "program")]


def java_program(folder: Path, main_class: str) -> list[str]:
    """All `*.java` of the folder, with the jars that its pom.xml names; without any the jars alone."""
    java = find_java()
    if not java:
        pytest.skip("Java 17 or 21 is not installed")
    mvn = _on_path("mvn")
    sources = sorted(path.name for path in folder.glob("*.java"))
    javac = _on_path(str(Path(java).with_name("javac")) if "/" in java else "javac") if sources else ""

    def build(at: Path) -> None:
        _run(at, mvn, "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=lib")
        if sources:
            _run(at, javac, "-proc:none", "-cp", "lib/*", "-d", "classes", *sources)

    built = _built(folder, build)
    return [java, "-Xmx256m", *OUR_JAVA_OPTIONS, "-cp", f"{built}/classes:{built}/lib/*", main_class]


def run(command: list[str], *arguments: str, timeout_s: float = RUN_TIMEOUT_S) -> list[dict[str, Any]]:
    """What it told; it must end well."""
    done = subprocess.run(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        preexec_fn=die_with_parent,
    )
    assert done.returncode == 0, f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Scenarios:
    """One program with one server: `scenarios("admin", topic="t")` runs that scenario and returns its last words."""

    def __init__(self, command: list[str], bootstrap_servers: str) -> None:
        self._start = [*command, bootstrap_servers]

    def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        told = run(self._start, name, json.dumps(arguments))
        assert told, f"{name} said nothing"
        return told[-1]

    def start(self, name: str, **arguments: Any) -> RunningProgram:
        return RunningProgram([*self._start, name, json.dumps(arguments)])


class RunningProgram:
    """A program that goes on until it is told to stop, and what it has told until now."""

    def __init__(self, command: list[str], folder: Path | None = None) -> None:
        self.told: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            preexec_fn=die_with_parent,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def of(self, key: str) -> list[Any]:
        """What stands under this key in all that it has told."""
        return [each[key] for each in list(self.told) if key in each]

    @property
    def code(self) -> int | None:
        """The code that it ended with; None while it runs."""
        return self._process.poll()

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, condition: Callable[[], object], patience_s: float = RUN_TIMEOUT_S) -> None:
        """Wait for it while this runs; fails with what it wrote when it does not come."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert self.code is None, f"it ended with {self.code}: {self.text}"
            assert time.monotonic() < deadline, f"this does not happen: {self.text}"
            time.sleep(0.05)

    def stop(self, timeout_s: float = RUN_TIMEOUT_S) -> int:
        """As with Ctrl-C; its exit code."""
        self._process.terminate()
        return self._end(timeout_s)

    def kill(self) -> None:
        self._process.kill()
        self._end(RUN_TIMEOUT_S)

    def wait(self, timeout_s: float = RUN_TIMEOUT_S) -> int:
        return self._end(timeout_s)

    def _end(self, timeout_s: float) -> int:
        code = self._process.wait(timeout_s)
        self._thread.join(timeout_s)
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line)
            if line.startswith("{"):
                self.told.append(json.loads(line))


def _on_path(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{Path(tool).name} is not installed (sh tools/needs.sh test tells how to get it)")
    return found


def _refuse_older_go(go: str, folder: Path) -> None:
    wanted = re.search(r"^go (\d+)\.(\d+)", (folder / "go.mod").read_text(), re.MULTILINE)
    said = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    assert wanted
    if found is None or (int(found[1]), int(found[2])) < (int(wanted[1]), int(wanted[2])):
        pytest.skip(f"go {wanted[1]}.{wanted[2]} is needed, there is {said.strip() or 'none'}")


def _built(folder: Path, build: Callable[[Path], None]) -> Path:
    """The folder of the program, filled on first use. Safe when several processes ask at once."""
    built = PROGRAMS / f"{folder.name}-{_key(folder)}"
    if built.is_dir():
        return built
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    with (PROGRAMS / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.is_dir():  # another process may have built it while we waited
            part = PROGRAMS / f"{built.name}.{os.getpid()}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for source in _sources(folder):
                to = part / source.relative_to(folder)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, to)
            try:
                build(part)
                part.rename(built)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return built


def _sources(folder: Path) -> list[Path]:
    ours = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(path for path in ours if path.suffix != ".py")


def _key(folder: Path) -> str:
    content = hashlib.sha256()
    for source in _sources(folder):
        content.update(f"{source.relative_to(folder)}\0".encode() + source.read_bytes() + b"\0")
    return content.hexdigest()[:12]


def _run(folder: Path, *command: str) -> None:
    """Twice if need be: what is fetched comes over a network."""
    for attempt in range(1, BUILD_TRIES + 1):
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
            preexec_fn=die_with_parent,
        )
        if done.returncode == 0:
            return
        if attempt == BUILD_TRIES:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-4000:]}")
