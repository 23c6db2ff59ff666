"""The configs of groups and of client metrics: what can be set for one of them while the cluster runs.

A key of a group has the broker's key of its synonym as default. The limits are those that Kafka's brokers have by
default for such values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from appliance.base.config_types import BadValue, ConfigKey, ConfigType, row, table
from appliance.base.durations import duration_ms

BOOLEAN, INT, STRING, LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST

BY_DURATION = "by_duration:"


def _offset_reset(value: object) -> str | None:
    text = str(value)
    if text in ("latest", "earliest"):
        return None
    if text.startswith(BY_DURATION) and duration_ms(text.removeprefix(BY_DURATION)) is not None:
        return None
    return "must be latest, earliest or by_duration:<a duration of ISO 8601>"


MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a pattern may be about."""
_PATTERN_MAX = 1_000
"""Characters of one pattern."""


def match_patterns(value: Sequence[str]) -> dict[str, str]:
    """The patterns of `match`, by what they are about. Raises: BadValue."""
    patterns: dict[str, str] = {}
    for item in value:
        name, equals, pattern = item.partition("=")
        name, pattern = name.strip(), pattern.strip()
        if not equals or "=" in pattern or name not in MATCHED:
            raise BadValue(f"Invalid value {item} for configuration match: one of {', '.join(MATCHED)} = a pattern")
        try:
            if len(pattern) > _PATTERN_MAX:
                raise BadValue(f"Invalid value for configuration match: a pattern of more than {_PATTERN_MAX} signs")
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadValue(f"Invalid value {item} for configuration match: {error}") from None
        patterns[name] = pattern
    return patterns


def _match(value: object) -> str | None:
    try:
        match_patterns(value if isinstance(value, tuple) else ())
    except BadValue as error:
        return str(error)
    return None


Limits = tuple[int, int | None]


def _pair(name: str, default: int, limits: Limits, doc: str) -> tuple[ConfigKey, ConfigKey]:
    """A group's key, and the broker's that gives its default.

    How far a group's may go the broker says: `group.consumer.min.…` and `group.consumer.max.…`
    """
    low, high = limits
    broker_key = f"group.{name}"
    # As in Kafka, whose other times of groups are read once.
    is_dynamic = name.endswith(".assignment.interval.ms")
    of_broker = row(broker_key, INT, default, doc, low=low, high=high, dynamic=is_dynamic)
    of_group_high = None if name.startswith("share.") else high
    return row(name, INT, default, doc, low=low, high=of_group_high, dynamic=True, synonyms=(broker_key,)), of_broker


def _times(kind: str) -> tuple[tuple[ConfigKey, ConfigKey], ...]:
    """What all kinds of groups have."""
    return (
        _pair(f"{kind}.session.timeout.ms", 45_000, (1, None), "How long a member may be silent."),
        _pair(f"{kind}.heartbeat.interval.ms", 5_000, (1, None), "How often members are to be heard."),
        _pair(f"{kind}.assignment.interval.ms", 1_000, (0, None), "The least time between assignments."),
    )


_PAIRS = (
    *_times("consumer"),
    *_times("share"),
    *_times("streams"),
    _pair(
        "share.record.lock.duration.ms",
        30_000,
        (1_000, 3_600_000),
        "How long a reader has for a record.",
    ),
    _pair("share.delivery.count.limit", 5, (2, 10), "How often a record is handed out."),
    _pair(
        "share.partition.max.record.locks",
        2_000,
        (100, 10_000),
        "Records of a partition that are handed out at once.",
    ),
    _pair("streams.num.standby.replicas", 0, (0, None), "Standby copies of a task's state."),
    _pair("streams.initial.rebalance.delay.ms", 3_000, (0, None), "How long a new group waits for members."),
)

GROUP_CONFIGS: dict[str, ConfigKey] = table(
    *(of_group for of_group, _ in _PAIRS),
    row(
        "share.auto.offset.reset",
        STRING,
        "latest",
        "Where a share group begins to read.",
        check=_offset_reset,
        allowed="latest, earliest, by_duration:…",
        dynamic=True,
    ),
    row(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are handed out.",
        choices=("read_committed", "read_uncommitted"),
        dynamic=True,
    ),
    row("share.renew.acknowledge.enable", BOOLEAN, True, "Whether a reader may ask for more time.", dynamic=True),
)
"""All configs of groups by name."""

GROUP_DEFAULT_CONFIGS = tuple(of_broker for _, of_broker in _PAIRS)
"""The broker configs that give a group's defaults."""

CLIENT_METRICS_CONFIGS: dict[str, ConfigKey] = table(
    row("interval.ms", INT, 300_000, "How often clients send metrics.", low=100, high=3_600_000, dynamic=True),
    row("match", LIST, (), "Which clients are meant.", check=_match, dynamic=True),
    row("metrics", LIST, (), "Prefixes of the names of metrics.", dynamic=True),
)
"""All configs of client metrics by name."""
