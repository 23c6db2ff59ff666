"""What a configuration key is: its type, its limits, and how its text is read and written.

Values are held as Python objects: BOOLEAN bool, INT/SHORT/LONG int, DOUBLE float, LIST tuple[str, ...], the others str;
None where nothing is set. Their text is Kafka's: `true`, `604800000`, `compact,delete`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

Value = Any
"""bool | int | float | str | tuple[str, ...] | None, according to the key's type."""

Check = Callable[[Value], str | None]
"""Says what is wrong with a value, or None."""


class ConfigType(IntEnum):
    """Types as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


_INTEGER_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}
_ARTICLED = {
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
}


class BadValue(ValueError):
    """A text that is no value of its key; the message names the key, the text and the reason."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of the definitions."""

    name: str
    type: ConfigType
    default: Value
    doc: str
    importance: Importance = Importance.MEDIUM
    validator: Check | None = None
    allowed: str = ""
    """The values that `validator` lets pass, for people."""
    dynamic: bool = False
    """Whether it may be altered while the cluster runs. All topic keys may."""
    synonyms: tuple[str, ...] = ()
    """For a topic key: the broker keys that give its default, the first that is set wins."""
    internal: bool = False
    """Honoured, but not shown by DescribeConfigs; meant for tests."""
    no_effect: str = ""
    """Why the key is accepted although nothing reads it; setting it in a file or flag logs a warning."""
    ours: bool = False
    """Apache Kafka has no key of this name."""

    def parse(self, text: str) -> Value:
        """The value that a text means.

        Raises:
            BadValue: not of the key's type, or refused by its validator.
        """
        value = _read(self, text.strip())
        problem = self.validator(value) if self.validator else None
        if problem:
            raise BadValue(f"Invalid value {text} for configuration {self.name}: {problem}")
        return value

    def text(self, value: Value) -> str | None:
        """The text that Kafka's tools show for a value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            # As Java writes it: 1.7976931348623157E308
            return str(value).replace("e+", "E").replace("e", "E")
        return str(value)

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD


def _read(key: ConfigKey, text: str) -> Value:
    match key.type:
        case ConfigType.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise BadValue(
                    f"Invalid value {text} for configuration {key.name}: Expected value to be either true or false"
                )
            return lowered == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            half = 1 << (_INTEGER_BITS[key.type] - 1)
            number = _whole_number(text)
            if number is None or not -half <= number < half:
                raise BadValue(f"Invalid value {text} for configuration {key.name}: Not {_ARTICLED[key.type]}")
            return number
        case ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise BadValue(f"Invalid value {text} for configuration {key.name}: Not a number") from None
        case ConfigType.LIST:
            items = tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
            if "" in items:
                raise BadValue(f"Invalid value {text} for configuration {key.name}: a list has no empty items")
            return items
        case _:
            return text


def _whole_number(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("-", "+") else text
    # int() also takes underscores, blanks and other scripts' digits, and its time grows with the square of the length.
    if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
        return None
    return int(text)


def at_least(low: float) -> Check:
    def check(value: Value) -> str | None:
        return f"Value must be at least {low}" if value is not None and value < low else None

    return check


def between(low: float, high: float, *, or_equal_to: float | None = None) -> Check:
    def check(value: Value) -> str | None:
        if value is None or low <= value <= high or (or_equal_to is not None and value == or_equal_to):
            return None
        if or_equal_to is not None:
            return f"Value must be between {low} and {high} or equal to {or_equal_to}"
        return f"Value must be at least {low}" if value < low else f"Value must be no more than {high}"

    return check


def one_of(*choices: str) -> Check:
    def check(value: Value) -> str | None:
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None and item not in choices:
                return f"String must be one of: {', '.join(choices)}"
        return None

    return check


def throttled_replicas(value: Value) -> str | None:
    """`*`, or `partition:broker` pairs (KIP-73)."""
    if value in ((), ("*",)):
        return None
    for item in value:
        left, colon, right = item.partition(":")
        if not (colon and left.isascii() and left.isdigit() and right.isascii() and right.isdigit()):
            return "must be the literal '*' or a list of [partitionId]:[brokerId] pairs"
    return None


def row(
    name: str,
    type_: ConfigType,
    default: Value,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    or_equal_to: float | None = None,
    choices: tuple[str, ...] = (),
    check: Check | None = None,
    allowed: str = "",
    importance: Importance = Importance.MEDIUM,
    dynamic: bool = False,
    synonyms: tuple[str, ...] = (),
    internal: bool = False,
    no_effect: str = "",
    ours: bool = False,
) -> ConfigKey:
    """A row of the definitions, with its limits in short form."""
    if choices:
        check, allowed = one_of(*choices), ", ".join(choices)
    elif low is not None and high is not None:
        check, allowed = between(low, high, or_equal_to=or_equal_to), f"{low} … {high}"
        if or_equal_to is not None:
            allowed += f" or {or_equal_to}"
    elif low is not None:
        check, allowed = at_least(low), f"{low} …"
    return ConfigKey(
        name=sys.intern(name),
        type=type_,
        default=default,
        doc=doc,
        importance=importance,
        validator=check,
        allowed=allowed,
        dynamic=dynamic,
        synonyms=synonyms,
        internal=internal,
        no_effect=no_effect,
        ours=ours,
    )


def table(*rows: ConfigKey) -> dict[str, ConfigKey]:
    """Rows by name, in the order of their names."""
    return {key.name: key for key in sorted(rows, key=lambda key: key.name)}
