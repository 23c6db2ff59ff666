"""How options are written: numbers, flags and times, for readers and writers alike. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_US_OF_UNIT = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Spark's units of time."""


class OptionError(ValueError):
    """An option that is missing, unknown or not readable; the message says which and what it takes."""


def flag_of(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Names in `options` are in lower case, here and below."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is true or false, not {text}")
    return text.lower() == "true"


def number_of(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        raise OptionError(f"{name} is a whole number of {least} or more, not {text}")
    return int(text)


def duration_ms_of(options: Mapping[str, str], name: str, default_ms: int) -> int:
    """A time as Spark's own options have it: `15m`, `90s`; without a unit these are milliseconds."""
    text = options.get(name.lower())
    if text is None:
        return default_ms
    found = re.fullmatch(r"([0-9]+)([a-z]*)", text.strip().lower())
    unit = (found[2] or "ms") if found else ""
    if found is None or unit not in _US_OF_UNIT:
        raise OptionError(f"{name} is a number with one of the units {', '.join(_US_OF_UNIT)}, like 15m, not {text}")
    return int(found[1]) * _US_OF_UNIT[unit] // 1_000
