"""Whole names of topics against a regular expression, in time that grows with the name alone (RE2's promise).

All ways through the expression are followed at once, so no expression can make the broker think for long; the sets of
places that were met are kept, which makes the usual step one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable

from appliance.consumer_groups.regex_syntax import (
    WORD,
    BadRegex,
    Characters,
    Choice,
    Node,
    Place,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["LENGTH_MAX", "STATES_MAX", "BadRegex", "TopicRegex", "check_regex"]

LENGTH_MAX = 10_000
"""Characters of an expression."""
STATES_MAX = 20_000
"""Places in an expression, its repetitions written out."""
_KEPT_MAX = 2_000
"""Sets of places that are kept; then we begin anew."""

_EPSILON, _CHARACTERS, _PLACE = 0, 1, 2


def check_regex(text: str) -> None:
    """Raises: BadRegex."""
    TopicRegex(text)


class TopicRegex:
    """One expression. Raises BadRegex when made from a text that is none, or too large a one."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise BadRegex(f"an expression of {len(text)} characters; {LENGTH_MAX} are allowed")
        self._kinds: list[int] = []
        self._bits: list[int] = []
        self._places: list[str] = []
        self._next: list[list[int]] = []
        self._end = self._state()
        self._start = self._compile(parse(text), self._end)
        self._closures: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is met."""
        states, before = frozenset((self._start,)), ""
        for character in name:
            states = self._step(self._closure(states, before, character), character)
            if not states:
                return False
            before = character
        return self._end in self._closure(states, before, "")

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """The names that are met, sorted."""
        return tuple(sorted(name for name in names if self.matches(name)))

    # What is followed

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        key = (states, character)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) >= _KEPT_MAX:
                self._steps.clear()
            bit = 1 << ord(character) if ord(character) < 128 else 0
            found = self._steps[key] = frozenset(
                self._next[state][0]
                for state in states
                if self._kinds[state] == _CHARACTERS and self._bits[state] & bit
            )
        return found

    def _closure(self, states: frozenset[int], before: str, after: str) -> frozenset[int]:
        """All places that are reached from these without a character, between the two."""
        key = (states, _kind(before), _kind(after))
        found = self._closures.get(key)
        if found is None:
            if len(self._closures) >= _KEPT_MAX:
                self._closures.clear()
            found = self._closures[key] = self._reached(states, *key[1:])
        return found

    def _reached(self, states: frozenset[int], before: str, after: str) -> frozenset[int]:
        is_boundary = (before == "w") != (after == "w")
        holds = {"^": before == "", "$": after == "", "b": is_boundary, "B": not is_boundary}
        reached, to_do = set(states), list(states)
        while to_do:
            state = to_do.pop()
            kind = self._kinds[state]
            if kind == _CHARACTERS or (kind == _PLACE and not holds[self._places[state]]):
                continue
            for each in self._next[state]:
                if each not in reached:
                    reached.add(each)
                    to_do.append(each)
        return frozenset(reached)

    # How it is made: from the end to the start

    def _state(self, kind: int = _EPSILON, bits: int = 0, place: str = "", following: Iterable[int] = ()) -> int:
        if len(self._kinds) >= STATES_MAX:
            raise BadRegex("the expression is too large")
        self._kinds.append(kind)
        self._bits.append(bits)
        self._places.append(place)
        self._next.append(list(following))
        return len(self._kinds) - 1

    def _compile(self, node: Node, end: int) -> int:
        match node:
            case Characters(bits):
                return self._state(_CHARACTERS, bits=bits, following=[end])
            case Place(kind):
                return self._state(_PLACE, place=kind, following=[end])
            case Sequence(parts):
                for part in reversed(parts):
                    end = self._compile(part, end)
                return end
            case Choice(ways):
                return self._state(following=[self._compile(way, end) for way in ways])
            case Repeat(part, low, high):
                return self._repeat(part, low, high, end)

    def _repeat(self, part: Node, low: int, high: int | None, end: int) -> int:
        if high is None:
            loop = self._state(following=[end])
            self._next[loop].append(self._compile(part, loop))
            end = loop
        else:
            after = end
            for _ in range(high - low):
                end = self._state(following=[after, self._compile(part, end)])
        for _ in range(low):
            end = self._compile(part, end)
        return end


def _kind(character: str) -> str:
    """What matters of a neighbour: none, one of a word, or another."""
    if not character:
        return ""
    return "w" if ord(character) < 128 and WORD >> ord(character) & 1 else "-"
