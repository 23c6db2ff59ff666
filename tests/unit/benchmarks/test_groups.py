"""What members of groups do in the benchmark, and where its figures and those of TLS go."""

from __future__ import annotations

from tests.benchmarks import groups, tls
from tests.benchmarks.group_members import ranges, sticky
from tests.benchmarks.run import DOCUMENT


def test_ranges_are_even_and_whole() -> None:
    assert [list(each) for each in ranges(7, 3)] == [[0, 1, 2], [3, 4], [5, 6]]


def test_a_sticky_target_is_even_and_keeps_what_it_can() -> None:
    target = sticky({"a": {0, 1, 2, 3, 4, 5}, "b": set()}, 7)
    assert {name: len(mine) for name, mine in target.items()} == {"a": 4, "b": 3}
    assert target["a"] == {0, 1, 2, 3}
    assert target["a"] | target["b"] == set(range(7))


def test_the_document_has_a_place_for_the_figures() -> None:
    text = DOCUMENT.read_text()
    for bench in (groups, tls):
        assert text.index(bench.BEGIN) < text.index(bench.END)
