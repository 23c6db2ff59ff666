"""Which Java runs Apache Kafka and its tools: JAVA_HOME's when it is set, else the one on PATH, if its version fits."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

JAVA_VERSIONS = (17, 21)


@cache
def find_java() -> str:
    """The command, found by running it as tools/needs.sh does; empty when there is none of version 17 or 21."""
    home = os.environ.get("JAVA_HOME", "")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return ""
    version = re.search(r'version "(\d+)', said)
    return java if version and int(version[1]) in JAVA_VERSIONS else ""
