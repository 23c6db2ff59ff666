"""Spark with its own Kafka source, to compare with: PySpark 4.2 in an environment of its own, fetched once.

For 4.3 the source cannot be had whole; of 4.2 its token provider is missing, and that of 4.0 serves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.repo import REPO

SPARK_VERSION = "4.2.0"
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
FOLDER = REPO / ".cache" / f"spark-{SPARK_VERSION}"
FETCH_TIMEOUT_S = 1_800


class NotInstalled(RuntimeError):
    """This machine lacks a tool."""


def kafka_source_python() -> Path:
    """The Python that has this PySpark; made on first use."""
    python = FOLDER / "venv" / "bin" / "python"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "venv" / ".whole").exists():
            shutil.rmtree(FOLDER / "venv", ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(FOLDER / "venv"))
            # setuptools is what PySpark's source archive is built with.
            _run(str(python), "-m", "pip", "install", "--quiet", "setuptools", "wheel")
            _run(str(python), "-m", "pip", "install", "--quiet", "--no-build-isolation", f"pyspark=={SPARK_VERSION}")
            (FOLDER / "venv" / ".whole").touch()
    return python


def kafka_source_jars() -> list[Path]:
    """The source and what it needs; fetched on first use. Raises: NotInstalled: there is no Maven."""
    jars = FOLDER / "jars"
    if not jars.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise NotInstalled("mvn is not installed; it fetches Spark's Kafka source")
        part = jars.with_name(f"jars.{os.getpid()}.part")
        for artifact in ARTIFACTS:
            _run(maven, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}")
        part.rename(jars)
    return sorted(jars.glob("*.jar"))


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} failed: {done.stdout.decode(errors='replace')[-2000:]}")
