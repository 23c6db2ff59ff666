"""Who fails at first and passes alone is named, and does not fail the run; who fails twice does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest as ours

pytest_plugins = ["pytester"]

UNSTEADY = """
    import pathlib

    def test_that_passes_the_second_time():
        been = pathlib.Path("been")
        first = not been.exists()
        been.touch()
        assert not first, "the first time"

    def test_that_passes():
        pass
"""
FAILS_TWICE = """
    def test_that_fails():
        assert False, "every time"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("SECOND_TRY", raising=False)
    pytester.makeconftest(Path(ours.__file__).read_text())
    pytester.path.joinpath("skips.allow").write_text("")
    return pytester


def put(run: pytest.Pytester, path: str, text: str) -> None:
    run.makepyfile(**{path: text})


def test_an_unsteady_test_of_real_processes_is_named_and_counts_as_passed(run: pytest.Pytester) -> None:
    put(run, "tests/integration/test_unsteady", UNSTEADY)
    result = run.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--dist", "loadscope")
    assert result.ret == 0
    assert result.outlines[-1] == "2 passed, 0 failed, 0 skipped"
    result.stdout.fnmatch_lines(["*the first time*", "UNSTEADY tests/integration/test_unsteady.py::*"])


def test_who_fails_twice_has_failed(run: pytest.Pytester) -> None:
    put(run, "tests/integration/test_unsteady", UNSTEADY)
    put(run, "tests/integration/test_broken", FAILS_TWICE)
    result = run.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 1
    assert result.outlines[-1] == "2 passed, 1 failed, 0 skipped"


def test_pure_code_has_one_try(run: pytest.Pytester) -> None:
    put(run, "tests/unit/test_unsteady", UNSTEADY)
    result = run.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 1
    assert result.outlines[-1] == "1 passed, 1 failed, 0 skipped"


def test_many_failures_are_no_accident(run: pytest.Pytester) -> None:
    put(run, "tests/integration/test_unsteady", UNSTEADY)
    put(run, "tests/integration/test_broken", "\n".join(f"def test_{n}(): assert False" for n in range(5)))
    result = run.runpytest_subprocess("-p", "no:cacheprovider")
    assert result.ret == 1
    assert result.outlines[-1] == "1 passed, 6 failed, 0 skipped"
    assert not any(line.startswith("UNSTEADY") for line in result.outlines)
