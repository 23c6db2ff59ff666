"""Rows and ratios of the benchmark's report, from runs that are made up."""

from __future__ import annotations

import pytest

from tests.benchmarks import stages
from tests.benchmarks.figures import LOADS, Load, Measure
from tests.benchmarks.report import BEGIN, END, row, section, spread, with_section

SPEED = Measure("speed", "1/s", lambda run: run["speed"], higher_is_better=True, digits=0)
LOAD = Load("one", "One load", "produce_load", (), (SPEED,))


def pair(kafka: float, ours: float) -> tuple[dict[str, float], dict[str, float]]:
    return {"speed": kafka}, {"speed": ours}


def test_a_spread_is_median_smallest_and_largest() -> None:
    assert spread([3.0, 1.0, 2000.0], 1) == "3.0 (1.0–2,000.0)"


def test_a_ratio_is_of_one_pair() -> None:
    """The machine was ten times slower in the second pair: the ratio stays."""
    told = row(SPEED, [pair(1000, 2000), pair(100, 200)])
    assert told == "| speed, 1/s (higher is better) | 550 (100–1,000) | 1,100 (200–2,000) | 2.00 (2.00–2.00) |"


def test_text_around_the_figures_is_kept() -> None:
    document = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    new = section([("Commit", "abc")], [(LOAD, [pair(1, 2)])], ("a", "b"), quotable=True)
    written = with_section(document, new)
    assert written.startswith(f"before\n{BEGIN}\n") and written.endswith(f"{END}\nafter\n")
    assert "old" not in written and "- Commit: abc" in written and "### One load" in written
    assert with_section(written, new) == written


def test_a_quick_run_says_that_it_is_not_to_be_quoted() -> None:
    assert "too few pairs to quote" in section([], [], ("a", "b"), quotable=False)
    assert "too few pairs to quote" not in section([], [], ("a", "b"), quotable=True)


def test_memory_stands_beside_the_loads_under_which_it_was_held() -> None:
    told = section(
        [],
        [],
        ("a", "b"),
        quotable=True,
        memory=[(400 << 20, 100 << 20), (600 << 20, 120 << 20), (800 << 20, 80 << 20)],
    )
    assert "| memory, MiB (lower is better) | 600 (400–800) | 100 (80–120) | 0.20 (0.10–0.25) |" in told


def test_a_document_without_the_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no marked section"):
        with_section("nothing here", "new")


def test_loads_have_names_of_their_own_and_measures() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)
    assert all(load.measures for load in LOADS)


def test_stages_stand_in_a_table_with_their_sum() -> None:
    told = stages.section({"one": (dict.fromkeys(stages.STAGES, 0.5), 1_000.0)}, 10)
    assert told.startswith(stages.BEGIN) and told.endswith(stages.END)
    assert f"| all | {0.5 * len(stages.STAGES):.2f} |" in told
    assert all(f"| {stage} | 0.50 |" in told for stage in stages.STAGES)
