"""With several workers, tests that share something heavy run on one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest as ours

pytest_plugins = ["pytester"]

TESTS = """
    import os, pathlib, pytest

    {mark}
    @pytest.mark.parametrize("number", range(8))
    def test_that_notes_its_worker(number):
        pathlib.Path({name!r} + os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


def test_a_group_and_a_file_stay_on_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(Path(ours.__file__).read_text())
    mark = '@pytest.mark.xdist_group("shared")'
    files = {"one": mark, "two": mark, "three": "", "four": ""}
    pytester.makepyfile(**{f"test_{name}": TESTS.format(mark=said, name=f"{name}-") for name, said in files.items()})
    result = pytester.runpytest_subprocess("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=32)
    workers = {name: [path.name.partition("-")[2] for path in pytester.path.glob(f"{name}-*")] for name in files}
    assert all(len(found) == 1 for found in workers.values()), workers
    assert workers["one"] == workers["two"]
