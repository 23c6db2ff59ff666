"""What this machine must have before anything is built, and how to get it where it is missing.

Runs under the system's Python, before there is a virtual environment: the standard library only. Every missing thing
is printed at once, each with its apt and its brew line. Nothing is changed, unless INSTALL=1 asks for it: then what apt
can install is installed, as on a fresh test machine.

    python3 tools/needs.py setup           what `make setup` needs
    python3 tools/needs.py test            the same, and what tests need beside it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
MIN_MEMORY_BYTES = 8 * 10**9
MIN_DISK_BYTES = 10 * 10**9
PYTHON_VERSIONS = ((3, 11), (3, 12), (3, 13))
JAVA_VERSIONS = (17, 21)
ASK_TIMEOUT_S = 60
APT_TIMEOUT_S = 1_800


@dataclass(frozen=True)
class Need:
    """One thing that must be there."""

    name: str
    check: Callable[[], str]
    """What is wrong, in one line; empty when all is well."""
    apt: str = ""
    """Packages for apt-get; empty where no package helps."""
    brew: str = ""


def output_of(*command: str) -> str:
    """What a command says on both streams; empty when it cannot be run or fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def java_version_of(java: str) -> int:
    """The feature version (17 for 17.0.15, 8 for 1.8.0) that `java -version` tells; 0 when it cannot be run."""
    found = re.search(r'version "(?:1\.)?(\d+)', output_of(java, "-version"))
    return int(found.group(1)) if found else 0


def java_candidates() -> list[str]:
    """JAVA_HOME's first, then the one on PATH."""
    home = os.environ.get("JAVA_HOME", "")
    in_home = [str(Path(home, "bin", "java"))] if home else []
    return [*in_home, "java"]


def find_java() -> str:
    """The Java that is used: the first candidate of a version that fits, found by running it. Empty when none does."""
    return next((java for java in java_candidates() if java_version_of(java) in JAVA_VERSIONS), "")


def check_java() -> str:
    if find_java():
        return ""
    seen = [f"{java} is {version}" for java in java_candidates() if (version := java_version_of(java))]
    return "Java 17 or 21 is needed; " + ("; ".join(seen) if seen else "`java -version` found none")


def check_python() -> str:
    if sys.version_info[:2] not in PYTHON_VERSIONS:
        return f"Python 3.11 to 3.13 is needed; {sys.executable} is {sys.version.split()[0]} (choose with PYTHON=...)"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return f"{sys.executable} cannot make virtual environments (venv and ensurepip are missing)"
    return ""


def check_make() -> str:
    found = re.search(r"GNU Make (\d+)\.(\d+)", output_of("make", "--version"))
    if not found:
        return "GNU make is needed"
    version = (int(found[1]), int(found[2]))
    return "" if version >= (3, 81) else f"GNU make 3.81 is needed; this is {found[1]}.{found[2]}"


def check_memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return "" if total >= MIN_MEMORY_BYTES else f"8 GB of memory are needed; this machine has {total / 1e9:.1f}"


def check_disk() -> str:
    free = shutil.disk_usage(REPO).free
    # What is already set up here has been paid for.
    if free >= MIN_DISK_BYTES or (REPO / ".venv" / ".stamp").exists():
        return ""
    return f"10 GB of free disk are needed where this folder lies; there are {free / 1e9:.1f}"


def on_path(*names: str) -> Callable[[], str]:
    return lambda: "" if any(shutil.which(name) for name in names) else f"{names[0]} is not on PATH"


SETUP = (
    Need("make", check_make, apt="make", brew="make"),
    Need("git", on_path("git"), apt="git", brew="git"),
    Need("python", check_python, apt="python3 python3-venv", brew="python@3.12"),
    Need("java", check_java, apt="default-jre-headless", brew="openjdk@21"),
    Need("memory", check_memory),
    Need("disk", check_disk),
)
TEST = (
    *SETUP,
    Need("mvn", on_path("mvn"), apt="maven", brew="maven"),
    Need("cc", on_path("cc", "gcc"), apt="gcc libc6-dev", brew="gcc"),
    Need("kcat", on_path("kcat"), apt="kcat", brew="kcat"),
)
NEEDS = {"setup": SETUP, "test": TEST}


def missing(needs: tuple[Need, ...]) -> list[tuple[Need, str]]:
    """Everything that is wrong, not only the first."""
    return [(need, wrong) for need in needs if (wrong := need.check())]


def report(found: list[tuple[Need, str]]) -> str:
    lines = ["This machine lacks what is needed:"]
    for need, wrong in found:
        lines.append(f"  {need.name}: {wrong}")
        if need.apt:
            lines.append(f"      apt-get install {need.apt}")
        if need.brew:
            lines.append(f"      brew install {need.brew}")
    apt = " ".join(need.apt for need, _ in found if need.apt)
    brew = " ".join(need.brew for need, _ in found if need.brew)
    if apt:
        lines += ["All of it in one line:", f"  sudo apt-get install -y {apt}", f"  brew install {brew}"]
    return "\n".join(lines)


def install(found: list[tuple[Need, str]]) -> None:
    """Install what apt has, as root or by sudo without a question; failures show when the needs are checked again."""
    packages = " ".join(need.apt for need, _ in found if need.apt).split()
    if not packages or not shutil.which("apt-get"):
        return
    as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", *packages]):
        print(f"INSTALL=1: apt-get {' '.join(arguments)}", flush=True)
        subprocess.run(
            [*as_root, "apt-get", *arguments], env=quiet, stdin=subprocess.DEVNULL, timeout=APT_TIMEOUT_S, check=False
        )


def main(arguments: list[str]) -> int:
    needs = NEEDS[arguments[0] if arguments else "setup"]
    found = missing(needs)
    if found and os.environ.get("INSTALL") == "1":
        install(found)
        found = missing(needs)
    if found:
        print(report(found), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
