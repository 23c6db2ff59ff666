"""RE2's syntax and its promise of linear time, over names of topics."""

from __future__ import annotations

import random
import re

import pytest

from appliance.consumer_groups.topic_regex import LENGTH_MAX, BadRegex, TopicRegex, check_regex


@pytest.mark.parametrize(
    ("regex", "met", "not_met"),
    [
        ("logs", ["logs"], ["log", "logss", "", "xlogs"]),
        ("logs.*", ["logs", "logs-1"], ["alogs"]),
        ("a|b.", ["a", "bx"], ["b", "ax"]),
        ("(a|b){2,3}", ["ab", "bba"], ["a", "abab"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{0}b", ["b"], ["ab"]),
        ("[a-c0-9_.-]+", ["a", "c-1.2_0"], ["d", ""]),
        ("[^a]", ["b", "-"], ["a", "bb"]),
        ("[]a]+", ["]a"], ["b"]),
        ("[[:alpha:]]+[[:^alpha:]]", ["ab1"], ["ab"]),
        (r"\d+\w\W\S\D", ["12a-b-"], ["12ab-", "12a- -"]),
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        ("(?i)Logs-[A-B]", ["LOGS-a", "logs-B"], ["logs-c"]),
        ("a(?i:b)c", ["aBc"], ["aBC"]),
        ("a(?i)b|c", ["aB", "C"], ["AB"]),
        ("(?P<name>a)b(?:c)?", ["ab", "abc"], ["b"]),
        (r"^a$", ["a"], ["aa"]),
        (r"a.*\bb", ["a-b"], ["acb", "ab"]),
        (r"a\Bb", ["ab"], ["a-b"]),
        (r"\pL+\p{Nd}\P{Nd}\p{^Lu}", ["ab1ab"], ["ab1aB"]),
        (r"\x61\x{62}\141", ["aba"], ["aa"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("a*?b+?c??", ["bb", "aabc"], ["a"]),
        ("", [""], ["a"]),
        ("()|a", ["", "a"], ["b"]),
    ],
)
def test_what_is_met(regex: str, met: list[str], not_met: list[str]) -> None:
    compiled = TopicRegex(regex)
    assert [name for name in met if not compiled.matches(name)] == []
    assert [name for name in not_met if compiled.matches(name)] == []


@pytest.mark.parametrize(
    "regex",
    ["[", "[a", "[b-a]", "(", ")", "(a", "*", "+a", "a**", "a++", "a{2}{3}", "a{3,2}", "a{1001}", "(?=a)", "(?!a)",
     "(?<=a)", "(?<!a)", "(?>a)", r"\1", r"\k<a>", "\\", r"\p{Klingon}", "[[:nope:]]", "(?P<>a)", "(?P<a>x)(?P<a>y)",
     "(?z)", r"\x6", "(" * 200 + ")" * 200, "((((a{100}){100}){100}){100})", "a" * (LENGTH_MAX + 1)],
)  # fmt: skip
def test_what_is_refused(regex: str) -> None:
    with pytest.raises(BadRegex):
        check_regex(regex)


def test_it_means_what_it_means_to_others() -> None:
    """Random expressions against Python's own, which has no limit of time."""
    chance = random.Random(7)
    letters = "ab.-1c"
    for _ in range(3_000):
        regex = _random_regex(chance, 0)
        compiled, other = TopicRegex(regex), re.compile(regex)
        for _ in range(8):
            name = "".join(chance.choice(letters) for _ in range(chance.randrange(1, 7)))
            assert compiled.matches(name) == bool(other.fullmatch(name)), (regex, name)


def _random_regex(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if depth > 4 or kind < 0.35:
        return chance.choice(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "-", "[a-c]", r"\."])
    if kind < 0.6:
        return _random_regex(chance, depth + 1) + _random_regex(chance, depth + 1)
    if kind < 0.75:
        return f"({_random_regex(chance, depth + 1)}|{_random_regex(chance, depth + 1)})"
    if kind < 0.95:
        how_often = chance.choice(["*", "+", "?", "{1,2}", "{2}", "*?", "{0,}"])
        return f"(?:{_random_regex(chance, depth + 1)}){how_often}"
    return chance.choice(["^", "$", r"\b", r"\B"])


@pytest.mark.parametrize("regex", ["(a*)*b", "(a|a)*(a|aa)*c", "(.*)*(.*)*x", "(a?){200}a{200}b"])
def test_no_expression_takes_long(regex: str) -> None:
    compiled = TopicRegex(regex)
    assert not compiled.matches("a" * 249)
    # Each step is remembered; no step is taken more often than the name is long.
    assert len(compiled._steps) <= 249


def test_names_come_sorted() -> None:
    assert TopicRegex("t.*").among(["tz", "x", "ta"]) == ("ta", "tz")
