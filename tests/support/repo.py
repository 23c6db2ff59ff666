"""What is in the repository, for the tests that look after the house."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("appliance", "connectors", "spark")


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file that git tracks and that is still there, relative to the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, check=True).stdout
    names = sorted(name for name in listed.decode().split("\0") if name)
    return tuple(Path(name) for name in names if (REPO / name).is_file())


def text_of(path: Path) -> str | None:
    """None when it is no text."""
    try:
        return (REPO / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def product_modules() -> tuple[Path, ...]:
    return tuple(path for path in tracked_files() if path.suffix == ".py" and path.parts[0] in PACKAGES)
