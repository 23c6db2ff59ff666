"""Bindings, arranged so that a decision is a few looks into dictionaries.

All bindings of one pattern are a table from (principal, host) to two sets of bits: what is allowed, what is denied.
Which patterns hold for a name: the literal one, the wildcard, and the prefixes of the name, found by bisecting.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import TypeAlias

from appliance.authorizer.bindings import ANYBODY, WILDCARD, AclBinding, Operation, PatternType, Permission

Lines: TypeAlias = dict[tuple[str, str], tuple[int, int]]
"""Of one pattern: (principal, host) to the bits of operations that are (allowed, denied)."""

_ALL = 1 << Operation.ALL


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in (*operations, Operation.ALL))


_ALLOWED_BY = {operation: _bits(operation) for operation in Operation} | {
    Operation.DESCRIBE: _bits(Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: _bits(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""Which of the operations that a binding allows are enough for an operation. What is denied implies nothing."""


class AclIndex:
    """All bindings. Each is added once before it is removed once."""

    def __init__(self) -> None:
        self._literals: dict[tuple[int, str], Lines] = {}
        self._prefixed: dict[tuple[int, str], Lines] = {}
        self._prefixes: dict[int, list[str]] = {}
        """By type of resource, in order."""

    def add(self, binding: AclBinding) -> None:
        place = (binding.resource_type, binding.name)
        if binding.pattern_type == PatternType.PREFIXED:
            if place not in self._prefixed:
                insort(self._prefixes.setdefault(binding.resource_type, []), binding.name)
            lines = self._prefixed.setdefault(place, {})
        else:
            lines = self._literals.setdefault(place, {})
        whom, bit = (binding.principal, binding.host), 1 << binding.operation
        allowed, denied = lines.get(whom, (0, 0))
        if binding.permission == Permission.ALLOW:
            lines[whom] = (allowed | bit, denied)
        else:
            lines[whom] = (allowed, denied | bit)

    def remove(self, binding: AclBinding) -> None:
        place = (binding.resource_type, binding.name)
        is_prefixed = binding.pattern_type == PatternType.PREFIXED
        patterns = self._prefixed if is_prefixed else self._literals
        lines = patterns[place]
        whom, bit = (binding.principal, binding.host), 1 << binding.operation
        allowed, denied = lines[whom]
        left = (allowed & ~bit, denied) if binding.permission == Permission.ALLOW else (allowed, denied & ~bit)
        if any(left):
            lines[whom] = left
            return
        del lines[whom]
        if not lines:
            del patterns[place]
            if is_prefixed:
                names = self._prefixes[binding.resource_type]
                del names[bisect_right(names, binding.name) - 1]

    def decide(self, principal: str, host: str, operation: Operation, resource_type: int, name: str) -> bool | None:
        """Whether the bindings allow it: no as soon as one denies it. None: no binding is about this resource."""
        enough, refuses = _ALLOWED_BY[operation], 1 << operation | _ALL
        people = ((principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD))
        is_allowed: bool | None = None
        for lines in self._about(resource_type, name):
            is_allowed = is_allowed or False
            for whom in people:
                found = lines.get(whom)
                if found is None:
                    continue
                if found[1] & refuses:
                    return False
                if found[0] & enough:
                    is_allowed = True
        return is_allowed

    def allows_some(self, principal: str, host: str, operation: Operation, resource_type: int) -> bool:
        """Whether there may be a resource of the type for which the bindings allow it, whatever its name.

        Here an operation stands for itself alone. A literal name counts unless it, a prefix of it or everything is
        denied; a prefix counts unless it or one of its own prefixes is.
        """
        bits = 1 << operation | _ALL
        people = ((principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD))

        def some(lines: Lines, at: int) -> bool:
            return any(whom in lines and lines[whom][at] & bits for whom in people)

        everything = self._literals.get((resource_type, WILDCARD), {})
        if some(everything, 1):
            return False
        if some(everything, 0):
            return True
        for (kind, name), lines in self._literals.items():
            if kind != resource_type or name == WILDCARD or not some(lines, 0) or some(lines, 1):
                continue
            if not any(some(above, 1) for above in self._prefixes_of(resource_type, name)):
                return True
        for (kind, prefix), lines in self._prefixed.items():
            if kind != resource_type or not some(lines, 0):
                continue
            if not any(some(above, 1) for above in self._prefixes_of(resource_type, prefix)):
                return True
        return False

    def _about(self, resource_type: int, name: str) -> Iterator[Lines]:
        """The tables of all patterns that hold for a name."""
        for literal in (name, WILDCARD) if name != WILDCARD else (WILDCARD,):
            lines = self._literals.get((resource_type, literal))
            if lines is not None:
                yield lines
        yield from self._prefixes_of(resource_type, name)

    def _prefixes_of(self, resource_type: int, name: str) -> Iterator[Lines]:
        """The tables of all prefixes of a name, itself among them; the longest first."""
        prefixes = self._prefixes.get(resource_type)
        at = name
        while prefixes and at:
            position = bisect_right(prefixes, at)
            if not position:
                return
            candidate = prefixes[position - 1]
            if at.startswith(candidate):
                yield self._prefixed[resource_type, candidate]
                at = candidate[:-1]
            else:
                # A prefix of `at` that reached beyond what both begin with would stand behind the candidate.
                same = next(
                    number for number, (one, other) in enumerate(zip(candidate, at, strict=False)) if one != other
                )
                at = at[:same]
