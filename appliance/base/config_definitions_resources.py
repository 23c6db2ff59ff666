"""The configs of groups and of client metrics: what can be set for one of them while the cluster runs.

A key of a group has the broker's key of its synonym as default. The limits are those that Kafka's brokers have by
default for such values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from appliance.base.config_types import BadValue, ConfigKey, ConfigType, row, table

BOOLEAN, INT, STRING, LIST = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING, ConfigType.LIST

_NO_SUCH_GROUPS = "groups of this kind are not served yet"
_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")


def _offset_reset(value: object) -> str | None:
    text = str(value)
    if text in ("latest", "earliest"):
        return None
    duration = text.removeprefix("by_duration:")
    if duration is not text and duration != text and _DURATION.fullmatch(duration):
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


def _pair(name: str, default: int, limits: Limits, broker_limits: Limits, doc: str) -> tuple[ConfigKey, ConfigKey]:
    """A group's key, and the broker's that gives its default."""
    (low, high), (broker_low, broker_high) = limits, broker_limits
    broker_key = f"group.{name}"
    no_effect = _NO_SUCH_GROUPS
    if name.startswith(("consumer.", "share.", "streams.")):
        # The broker says how far they may go: group.consumer.min.… and group.consumer.max.…
        (low, high), no_effect = broker_limits, ""
        if name.startswith("share."):
            high = None
    # As in Kafka, whose other times of groups are read once.
    is_dynamic = name == "consumer.assignment.interval.ms"
    of_broker = row(
        broker_key, INT, default, doc, low=broker_low, high=broker_high, dynamic=is_dynamic, no_effect=no_effect
    )
    return row(name, INT, default, doc, low=low, high=high, dynamic=True, synonyms=(broker_key,)), of_broker


def _times(kind: str) -> tuple[tuple[ConfigKey, ConfigKey], ...]:
    """What all kinds of groups have."""
    return (
        _pair(f"{kind}.session.timeout.ms", 45_000, (45_000, 60_000), (1, None), "How long a member may be silent."),
        _pair(f"{kind}.heartbeat.interval.ms", 5_000, (5_000, 15_000), (1, None), "How often members are to be heard."),
        _pair(f"{kind}.assignment.interval.ms", 1_000, (0, 15_000), (0, None), "The least time between assignments."),
    )


_PAIRS = (
    *_times("consumer"),
    *_times("share"),
    *_times("streams"),
    _pair(
        "share.record.lock.duration.ms",
        30_000,
        (15_000, 60_000),
        (1_000, 3_600_000),
        "How long a reader has for a record.",
    ),
    _pair("share.delivery.count.limit", 5, (2, 10), (2, 10), "How often a record is handed out."),
    _pair(
        "share.partition.max.record.locks",
        2_000,
        (100, 4_000),
        (100, 10_000),
        "Records of a partition that are handed out at once.",
    ),
    _pair("streams.num.standby.replicas", 0, (0, 2), (0, None), "Standby copies of a task's state."),
    _pair("streams.initial.rebalance.delay.ms", 3_000, (0, None), (0, None), "How long a new group waits for members."),
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
