"""`make setup` tells everything that a machine lacks, at once, and how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.repo import REPO, tracked_files

SHELL = shutil.which("sh") or "/bin/sh"


def needs(which: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHELL, str(REPO / "tools" / "needs.sh"), which],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"""#!{SHELL}\necho 'openjdk version "{version}" 2025-01-01' >&2\n""")
    java.chmod(0o755)
    return folder


def test_on_an_empty_machine_every_need_is_told_with_its_lines(tmp_path: Path) -> None:
    told = needs("test", PATH=str(tmp_path), CI="true")
    assert told.returncode == 1
    names = ("make", "git", "python", "java", "mvn", "cc", "kcat", "node", "go", "cargo", "javac")
    for name in names:
        assert re.search(rf"^  {name}: ", told.stderr, re.MULTILINE), f"{name} is not told:\n{told.stderr}"
    assert told.stderr.count("\n      apt-get install ") == told.stderr.count("\n      brew install ") == len(names)
    everything = re.search(r"sudo apt-get install -y (.*)", told.stderr)
    assert everything and {"make", "git", "maven", "kcat", "gcc"} <= set(everything.group(1).split())


def test_on_this_machine_nothing_is_missing() -> None:
    told = needs("test", **os.environ)
    assert (told.returncode, told.stderr) == (0, "")


def test_without_other_languages_a_users_tests_run_and_skip_and_those_of_ci_do_not(tmp_path: Path) -> None:
    for tool in ("make", "git", "mvn", "cc", "kcat", "df", "cat", "env"):
        path = shutil.which(tool)
        assert path
        (tmp_path / tool).symlink_to(path)
    python, java = REPO / ".venv" / "bin" / "python", fake_java(tmp_path / "java", "21.0.1")
    environment = {"PATH": str(tmp_path), "PYTHON": str(python), "JAVA_HOME": str(java)}
    told = needs("test", **environment)
    assert told.returncode == 0, told.stderr
    for name in ("node", "go", "cargo", "javac"):
        assert re.search(rf"^  {name}: ", told.stderr, re.MULTILINE)
    assert needs("test", CI="true", **environment).returncode == 1


def test_java_is_the_one_of_java_home_and_is_found_by_running_it(tmp_path: Path) -> None:
    path = os.environ["PATH"]
    old, good = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "good", "21.0.1")
    told = needs("setup", PATH=path, JAVA_HOME=str(old))
    assert told.returncode == 1
    assert f"says 11.0.2; JAVA_HOME is {old}" in told.stderr
    assert needs("setup", PATH=path, JAVA_HOME=str(good)).returncode == 0
    assert needs("setup", PATH=path, JAVA_HOME=str(tmp_path / "nowhere")).returncode == 1


def test_locks_carry_hashes_and_name_no_index() -> None:
    locks = [path for path in tracked_files() if path.parts[0] == "requirements" and path.suffix == ".lock"]
    assert {path.stem for path in locks} >= {"core", "dev", "build", "node", "tools"}
    for path in locks:
        text = (REPO / path).read_text()
        pinned = re.findall(r"^[A-Za-z0-9_.\-]+(?:\[.*?\])?==.*$", text, re.MULTILINE)
        assert pinned and all(line.endswith("\\") for line in pinned), f"{path}: a requirement without a hash"
        assert "://" not in text


def test_everything_in_pyproject_is_in_the_lock() -> None:
    project, lock = (REPO / "pyproject.toml").read_text(), (REPO / "requirements" / "dev.lock").read_text().lower()
    block = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    for spec in re.findall(r'^ {4}"([A-Za-z0-9\-]+)', block, re.MULTILINE):
        assert re.search(rf"^{spec.lower()}(\[.*?\])?==", lock, re.MULTILINE), f"{spec}: run `make lock`"


def test_ci_runs_make_test() -> None:
    script = REPO / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make --no-print-directory test </dev/null" in script.read_text()
