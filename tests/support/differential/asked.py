"""What the cases ask, counted: of each API and version, how many answers tell of success and how many of an error.

`asked.json` says it of each case. The test of a case holds its lines true (it asks at least that much), and
tests/house/test_differential_coverage.py adds them up. After a change of cases:

    DIFFERENTIAL_ASKED=write .venv/bin/pytest tests/compat/differential

An answer is one of success when nothing in it is an error and something is in it; an ended connection is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ASKED = Path(__file__).with_name("asked.json")
WRITE_VARIABLE = "DIFFERENTIAL_ASKED"
IS_WRITTEN = os.environ.get(WRITE_VARIABLE) == "write"

Served = Mapping[int, tuple[int, int]]
"""Lowest and highest version by API key."""
Tally = dict[tuple[int, int], "Counts"]
"""By API key and version."""


@dataclass
class Counts:
    successes: int = 0
    errors: int = 0


def tally(answers: Iterable[tuple[int, int, Any]]) -> Tally:
    """Of answers as (API key, version, what was compared)."""
    counted: Tally = {}
    for key, version, answer in answers:
        counts = counted.setdefault((key, version), Counts())
        if isinstance(answer, str) or _has_error(answer):
            counts.errors += 1
        elif _has_something(answer):
            counts.successes += 1
    return counted


def add(into: Tally, other: Tally) -> None:
    for place, counts in other.items():
        known = into.setdefault(place, Counts())
        known.successes += counts.successes
        known.errors += counts.errors


def _has_error(value: Any) -> bool:
    if isinstance(value, dict):
        return any((name.endswith("error_code") and inner) or _has_error(inner) for name, inner in value.items())
    return isinstance(value, list) and any(map(_has_error, value))


def _has_something(answer: dict[str, Any]) -> bool:
    """Whether one of its lists has rows; what has no lists says it all."""
    rows = [value for value in answer.values() if isinstance(value, list)]
    return not rows or any(rows)


def kafka_serves() -> dict[int, tuple[int, int]]:
    """What Apache Kafka 4.3 offers to clients."""
    return {int(key): (low, high) for key, (low, high) in _told()["kafka serves"].items()}


def _told() -> Any:
    return json.loads(ASKED.read_text()) if ASKED.exists() else {"kafka serves": {}, "cases": {}}


def read() -> dict[str, Tally]:
    """By the name of the case."""
    cases: dict[str, Tally] = {}
    for name, apis in _told()["cases"].items():
        cases[name] = {
            (int(key), version): Counts(*counts)
            for key, versions in apis.items()
            for span, counts in versions.items()
            for version in _versions(span)
        }
    return cases


def write(cases: dict[str, Tally], served: Served) -> None:
    """With the versions that are asked alike in one entry."""
    told: dict[str, dict[str, dict[str, list[int]]]] = {}
    for name in sorted(cases):
        for (key, version), counts in sorted(cases[name].items()):
            versions = told.setdefault(name, {}).setdefault(str(key), {})
            last = next(reversed(versions), None)
            entry = [counts.successes, counts.errors]
            if last is not None and versions[last] == entry and _versions(last)[-1] == version - 1:
                del versions[last]
                versions[f"{_versions(last)[0]}-{version}"] = entry
            else:
                versions[str(version)] = entry
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(apis)}" for name, apis in told.items())
    ASKED.write_text(f'{{\n "kafka serves": {json.dumps(dict(served))},\n "cases": {{\n{lines}\n }}\n}}\n')


def _versions(span: str) -> range:
    low, _, high = span.partition("-")
    return range(int(low), int(high or low) + 1)


def keep_served(served: Served) -> None:
    """Of Apache Kafka as it runs: write it down, or see that it is what is written."""
    if IS_WRITTEN:
        write(read(), served)
    assert kafka_serves() == served


def keep(case: str, found: Tally) -> None:
    """Of a case that has just run: write it down, or see that what is written is not more than it has asked."""
    if IS_WRITTEN:
        write({**read(), case: found}, kafka_serves())
        return
    for (key, version), told in read().get(case, {}).items():
        counts = found.get((key, version), Counts())
        assert counts.successes >= told.successes and counts.errors >= told.errors, (
            f"{case} has {counts} answers of API {key} in version {version}, and asked.json says {told}"
        )
