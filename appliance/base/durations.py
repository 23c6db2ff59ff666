"""Durations as ISO 8601 writes them, as far as Java reads them: `PnDTnHnMn.nS`, in any case of letters, with signs."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?=.)(?:(?P<days>[-+]?\d{1,18})D)?"
    r"(?:T(?=.)(?:(?P<hours>[-+]?\d{1,18})H)?(?:(?P<minutes>[-+]?\d{1,18})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,18})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SECONDS_OF = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_NANOS_PER_SECOND, _NANOS_PER_MS = 1_000_000_000, 1_000_000
_SECONDS_MAX = 2**63 - 1


def duration_ms(text: str) -> int | None:
    """In whole milliseconds, rounded down; None if it is none, or would go back."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    seconds = sum(int(found[unit] or 0) * length for unit, length in _SECONDS_OF.items())
    nanos = int((found["fraction"] or "").ljust(9, "0"))
    whole = seconds * _NANOS_PER_SECOND + (-nanos if (found["seconds"] or "").startswith("-") else nanos)
    if found["sign"] == "-":
        whole = -whole
    return whole // _NANOS_PER_MS if 0 <= whole <= _SECONDS_MAX * _NANOS_PER_SECOND else None
