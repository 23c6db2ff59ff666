"""Apache Kafka's jars, fetched once by Maven into `.cache/` of the repository. Used to compare with, never shipped."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.java import find_java

KAFKA_VERSION = "4.3.0"
EARLIER_VERSION = "3.9.1"
"""The last release that had the versions of requests which Kafka 4 has given up."""
REPO = Path(__file__).resolve().parents[2]
POM = Path(__file__).parent / "kafka" / "pom.xml"
MAVEN_TIMEOUT_S = 900
MAVEN_TRIES = 3


def kafka_jars() -> Path:
    """The folder of the jars, filled on first use. Safe when several processes ask at once.

    Skips the calling test when Maven is missing; raises RuntimeError with Maven's last words when it fails.
    """
    lib = REPO / ".cache" / f"kafka-{KAFKA_VERSION}" / "lib"
    if lib.is_dir():
        return lib
    lib.parent.mkdir(parents=True, exist_ok=True)
    with (lib.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not lib.is_dir():  # another process may have filled it while we waited
            _fill(lib)
    return lib


def _fill(lib: Path) -> None:
    """The folder appears under its name only when it is complete."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("mvn is not installed")
    part = lib.with_name(f"lib.{os.getpid()}.part")
    command = [maven, "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    for attempt in range(1, MAVEN_TRIES + 1):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        if done.returncode == 0:
            break
        if attempt == MAVEN_TRIES:
            shutil.rmtree(part, ignore_errors=True)
            raise RuntimeError(f"mvn could not fetch Kafka's jars: {done.stdout.decode(errors='replace')[-2000:]}")
    part.rename(lib)


def kafka_jar(artifact: str) -> Path:
    """One of Kafka's own jars, for instance `kafka-clients`."""
    return kafka_jars() / f"{artifact}-{KAFKA_VERSION}.jar"


def earlier_clients_jar() -> Path:
    """`kafka-clients` of the release before 4.0, fetched on first use."""
    jar = REPO / ".cache" / f"kafka-{EARLIER_VERSION}" / f"kafka-clients-{EARLIER_VERSION}.jar"
    if jar.exists():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("mvn is not installed")
    part = jar.parent / f"{os.getpid()}.part"
    artifact = f"org.apache.kafka:kafka-clients:{EARLIER_VERSION}"
    command = [maven, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={part}"]
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=MAVEN_TIMEOUT_S, check=True)
    (part / jar.name).rename(jar)
    shutil.rmtree(part)
    return jar


def java_command(main_class: str, *arguments: str, heap: str = "256m", options: tuple[str, ...] = ()) -> list[str]:
    """The command line that runs a class of Kafka's: its tools and its server. Skips the test without a Java."""
    java = find_java()
    if not java:
        pytest.skip("Java 17 or 21 is not installed")
    quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Xshare:auto")
    return [java, f"-Xmx{heap}", *quiet, *options, "-cp", f"{kafka_jars()}/*", main_class, *arguments]
