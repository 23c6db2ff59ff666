"""The benchmark's clients, compiled when their sources have changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.repo import REPO

CLIENTS = Path(__file__).parent / "clients"
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
COMPILE_TIMEOUT_S = 120


def client_program(name: str) -> Path:
    """The compiled client. Raises FileNotFoundError without a C compiler, CalledProcessError when it refuses."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc libc6-dev")
    source, header = CLIENTS / f"{name}.c", CLIENTS / "kafka_wire.h"
    version = hashlib.sha256(source.read_bytes() + header.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    program = REPO / ".cache" / "benchmarks" / f"{name}-{version}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_name(f"{program.name}.{os.getpid()}.part")
        subprocess.run([compiler, *FLAGS, "-o", part, source], check=True, timeout=COMPILE_TIMEOUT_S)
        part.rename(program)
    return program
