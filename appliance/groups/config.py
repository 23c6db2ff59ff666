"""What the operator may say about groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Values of the broker's configuration, with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`"""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`"""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long an empty group waits for more members to come."""
    max_size: int = 2**31 - 1
    """`group.max.size`"""
    offset_metadata_max_bytes: int = 4_096
    """`offset.metadata.max.bytes`"""
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    """`offsets.retention.minutes`"""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`"""
    new_member_join_timeout_ms: int = 5 * _MINUTE_MS
    """How long the JoinGroup of a new member is kept: it knows no id yet with which it could send heartbeats."""
    pending_members_max: int = 10_000
    """Members of one group that were given an id and have not come back with it yet."""


def group_config(get: Callable[[str], Any]) -> GroupConfig:
    """From the broker's configuration; `get` returns the typed value of a key."""
    return GroupConfig(
        min_session_timeout_ms=get("group.min.session.timeout.ms"),
        max_session_timeout_ms=get("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=get("group.initial.rebalance.delay.ms"),
        max_size=get("group.max.size"),
        offset_metadata_max_bytes=get("offset.metadata.max.bytes"),
        offsets_retention_ms=get("offsets.retention.minutes") * _MINUTE_MS,
        offsets_retention_check_interval_ms=get("offsets.retention.check.interval.ms"),
    )
