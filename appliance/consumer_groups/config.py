"""What the operator may say about consumer groups: for all of them, and for one (`consumer.*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Values of the broker's configuration, with Kafka's defaults."""

    session_timeout_ms: int = 45_000
    """`group.consumer.session.timeout.ms`"""
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    """`group.consumer.heartbeat.interval.ms`"""
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    """`group.consumer.assignment.interval.ms`: the least time between two targets (KIP-1263)."""
    assignment_interval_now: Callable[[], int] | None = None
    """The same as it is now, where it may be altered while the broker runs."""
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    max_size: int = 2**31 - 1
    """`group.consumer.max.size`"""
    assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`; the first is the default."""
    migration_policy: str = BIDIRECTIONAL
    """`group.consumer.migration.policy`: which groups may change their protocol while members live."""
    regex_refresh_interval_ms: int = 600_000
    """`group.consumer.regex.refresh.interval.ms`"""

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in (BIDIRECTIONAL, UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in (BIDIRECTIONAL, DOWNGRADE)

    def session_timeout_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_session_timeout_ms, self.max_session_timeout_ms
        return _of_group(entries, "consumer.session.timeout.ms", self.session_timeout_ms, low, high)

    def heartbeat_interval_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_heartbeat_interval_ms, self.max_heartbeat_interval_ms
        return _of_group(entries, "consumer.heartbeat.interval.ms", self.heartbeat_interval_ms, low, high)

    def assignment_interval_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_assignment_interval_ms, self.max_assignment_interval_ms
        now = self.assignment_interval_now
        default = self.assignment_interval_ms if now is None else now()
        return _of_group(entries, "consumer.assignment.interval.ms", default, low, high)


def _of_group(entries: Mapping[str, str], key: str, default: int, low: int, high: int) -> int:
    text = entries.get(key)
    return default if text is None else max(low, min(high, int(text)))


def consumer_group_config(get: Callable[[str], Any]) -> ConsumerGroupConfig:
    """From the broker's configuration; `get` returns the typed value that a key has now."""
    return ConsumerGroupConfig(
        session_timeout_ms=get("group.consumer.session.timeout.ms"),
        min_session_timeout_ms=get("group.consumer.min.session.timeout.ms"),
        max_session_timeout_ms=get("group.consumer.max.session.timeout.ms"),
        heartbeat_interval_ms=get("group.consumer.heartbeat.interval.ms"),
        min_heartbeat_interval_ms=get("group.consumer.min.heartbeat.interval.ms"),
        max_heartbeat_interval_ms=get("group.consumer.max.heartbeat.interval.ms"),
        assignment_interval_ms=get("group.consumer.assignment.interval.ms"),
        assignment_interval_now=lambda: get("group.consumer.assignment.interval.ms"),
        min_assignment_interval_ms=get("group.consumer.min.assignment.interval.ms"),
        max_assignment_interval_ms=get("group.consumer.max.assignment.interval.ms"),
        max_size=get("group.consumer.max.size"),
        assignors=get("group.consumer.assignors"),
        migration_policy=get("group.consumer.migration.policy").lower(),
        regex_refresh_interval_ms=get("group.consumer.regex.refresh.interval.ms"),
    )
