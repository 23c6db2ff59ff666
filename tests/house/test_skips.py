"""The rule about skips holds, and its list stays readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import conftest as ours

pytest_plugins = ["pytester"]

ONE_OF_EACH = """
    import pytest

    def test_that_lacks_a_tool():
        pytest.skip("no such tool here")

    @pytest.mark.skip(reason="cannot run")
    def test_that_is_marked():
        pass

    def test_that_runs():
        pass
"""


@pytest.fixture
def run_of_one_of_each(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("CI", "true")
    pytester.makeconftest(Path(ours.__file__).read_text())
    pytester.makepyfile(test_one_of_each=ONE_OF_EACH)
    return pytester


def test_every_allowed_skip_names_a_test_and_a_reason() -> None:
    for pattern, reason in ours.allowed_skips(ours.SKIPS_ALLOWED.read_text()):
        assert pattern.startswith("tests/"), pattern
        assert len(reason.split()) >= 3, f"{pattern}: say why in a few words"


def test_a_skip_fails_in_ci(run_of_one_of_each: pytest.Pytester) -> None:
    run_of_one_of_each.path.joinpath("skips.allow").write_text("# nothing is allowed\n")
    result = run_of_one_of_each.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1, errors=1)
    assert result.outlines[-1] == "1 passed, 2 failed, 0 skipped"


def test_a_skip_that_is_allowed_for_a_reason_stays_a_skip(run_of_one_of_each: pytest.Pytester) -> None:
    run_of_one_of_each.path.joinpath("skips.allow").write_text("*::test_that_* # nobody has this tool\n")
    result = run_of_one_of_each.runpytest_inprocess()
    result.assert_outcomes(passed=1, skipped=2)
    assert result.outlines[-1] == "1 passed, 0 failed, 2 skipped"
