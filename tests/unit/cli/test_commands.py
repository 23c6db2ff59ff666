"""The command as a user starts it: quick, with clear one-line errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest

from appliance.base.errors import UserError
from appliance.cli.produce import _key_and_value, _lines_of
from tests.support.repo import REPO
from tests.support.running import python_environment

COMMANDS = ("up", "topics", "produce", "consume", "status", "tier", "cluster")


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "appliance.cli", *arguments],
        cwd=REPO,
        env=python_environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_names_every_command() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert all(re.search(rf"^  {command} ", shown.stdout, re.MULTILINE) for command in COMMANDS)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['appliance', '--help']\n"
        "from appliance.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'ray', 'rich', 'boto3', 'starlette', 'uvloop', 'appliance.wire'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_help_costs_little_cpu() -> None:
    def cpu_s() -> float:
        before = os.times()
        run("--help")
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # 0.13 s on the machine of the measurement; three times that leaves room for slower ones.
    assert min(cpu_s() for _ in range(3)) < 0.4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("topics", "list", "-b", "127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("topics", "list", "-b", "nonsense"), 2, "bootstrap servers"),
        (("produce", "t", "-b", "127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("produce", "t", "/no/such/file"), 2, "/no/such/file"),
        (("tier", "verify", "nothing://nowhere"), 2, "s3://bucket/prefix"),
        (("tier", "verify", "ftp://127.0.0.1:1/tier"), 4, "ftp://127.0.0.1:1/tier: no connection"),
        (("up", "--host", "0.0.0.0"), 2, "--insecure"),
        (("up", "--config", "/no/such/file"), 2, "No such file"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(arguments: tuple[str, ...], code: int, words: str) -> None:
    started = time.monotonic()
    failed = run(*arguments)
    assert failed.returncode == code, failed.stderr
    assert failed.stderr.startswith("appliance: ")
    assert words in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert failed.stdout == ""
    assert time.monotonic() - started < 40


@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "t", "-o", "yesterday"),
        ("topics", "create", "t", "-c", "retention.ms"),
        ("produce", "t", "--key", "k", "--key-separator", ":"),
        ("produce", "t", "--compression", "brotli"),
        ("up", "--brokers", "many"),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_code_2(arguments: tuple[str, ...]) -> None:
    failed = run(*arguments)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr


def test_lines_go_out_as_they_come_and_across_reads() -> None:
    read, write = os.pipe()
    lines = _lines_of(read, "pipe")
    os.write(write, b"a\nb\nc")
    assert next(lines) == [b"a", b"b"]
    os.write(write, b"d")
    os.write(write, b"e\n\nlast")
    assert next(lines) == [b"cde", b""]
    os.close(write)
    assert list(lines) == [[b"last"]]
    os.close(read)


def test_a_line_without_its_separator_is_named() -> None:
    assert _key_and_value(b"k:v:w", None, b":") == (b"k", b"v:w")
    assert _key_and_value(b"v", b"k", None) == (b"k", b"v")
    with pytest.raises(UserError, match="no key separator: 'kv'"):
        _key_and_value(b"kv", None, b":")
