"""From runs to rows: medians with their range, ratios of pairs, and the section of docs/benchmarks.md they stand in."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tests.benchmarks.figures import Load, Measure

BEGIN = "<!-- figures: written by `make bench`, from here -->"
END = "<!-- figures: to here -->"

Pair = tuple[dict[str, float], dict[str, float]]
"""What one load gave within the same minute: Apache Kafka's run first, then ours."""


def spread(values: Sequence[float], digits: int) -> str:
    """`median (smallest–largest)`"""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def row(measure: Measure, pairs: Sequence[Pair]) -> str:
    """One line of a table. The ratio is ours to Kafka's, per pair, so that what disturbed both weighs on neither."""
    kafka = [measure.of(pair[0]) for pair in pairs]
    ours = [measure.of(pair[1]) for pair in pairs]
    ratios = [mine / theirs if theirs else float("nan") for mine, theirs in zip(ours, kafka, strict=True)]
    wish = "higher" if measure.higher_is_better else "lower"
    return (
        f"| {measure.name}, {measure.unit} ({wish} is better) | {spread(kafka, measure.digits)} "
        f"| {spread(ours, measure.digits)} | {spread(ratios, 2)} |"
    )


def table(title: str, measures: Sequence[Measure], pairs: Sequence[Pair], names: tuple[str, str]) -> str:
    """`names` are the two servers', as in the pairs."""
    head = [f"### {title}", "", f"| | {names[0]} | {names[1]} | ratio |", "|---|---|---|---|"]
    return "\n".join([*head, *(row(measure, pairs) for measure in measures)])


def listed(facts: Sequence[tuple[str, str]]) -> list[str]:
    return [f"- {name}: {fact}" for name, fact in facts]


def marked(lines: Sequence[str], begin: str, end: str) -> str:
    """A section as `with_section` finds it again."""
    return "\n".join([begin, "", *lines, "", end])


def memory_table(memory: Sequence[tuple[int, int]], names: tuple[str, str]) -> str:
    """Memory of all processes of each server, after each load in turn."""
    measure = Measure("memory", "MiB", lambda run: run["memory"] / 2**20, digits=0)
    pairs = [({"memory": theirs}, {"memory": ours}) for theirs, ours in memory]
    return table("Memory of all processes, after the loads above", (measure,), pairs, names)


def section(
    facts: Sequence[tuple[str, str]],
    results: Sequence[tuple[Load, Sequence[Pair]]],
    names: tuple[str, str],
    *,
    quotable: bool,
    memory: Sequence[tuple[int, int]] = (),
    begin: str = BEGIN,
    end: str = END,
) -> str:
    """The facts of the run, a table per load and one of memory. `names` are the two servers', as in the pairs."""
    lines = [] if quotable else ["**A quick run while developing: too few pairs to quote.**", ""]
    lines += listed(facts)
    for load, pairs in results:
        lines += ["", table(load.title, load.measures, pairs, names)]
    if memory:
        lines += ["", memory_table(memory, names)]
    return marked(lines, begin, end)


def with_section(document: str, new: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The document with its marked section replaced; what stands around it is kept. ValueError without the marks."""
    before, begin, rest = document.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError("the document has no marked section for the figures")
    return before + new + after
