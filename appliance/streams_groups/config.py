"""What the operator may say about groups of Kafka Streams: for all of them, and for one (`streams.*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """Values of the broker's configuration, with Kafka's defaults."""

    session_timeout_ms: int = 45_000
    """`group.streams.session.timeout.ms`"""
    min_session_timeout_ms: int = 45_000
    max_session_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    """`group.streams.heartbeat.interval.ms`"""
    min_heartbeat_interval_ms: int = 5_000
    max_heartbeat_interval_ms: int = 15_000
    assignment_interval_ms: int = 1_000
    """`group.streams.assignment.interval.ms`: the least time between two targets."""
    assignment_interval_now: Callable[[], int] | None = None
    """The same as it is now, where it may be altered while the broker runs."""
    min_assignment_interval_ms: int = 0
    max_assignment_interval_ms: int = 15_000
    initial_rebalance_delay_ms: int = 3_000
    """`group.streams.initial.rebalance.delay.ms`"""
    num_standby_replicas: int = 0
    """`group.streams.num.standby.replicas`"""
    max_standby_replicas: int = 2
    max_size: int = 2**31 - 1
    """`group.streams.max.size`"""

    def session_timeout_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_session_timeout_ms, self.max_session_timeout_ms
        return _of_group(entries, "streams.session.timeout.ms", self.session_timeout_ms, low, high)

    def heartbeat_interval_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_heartbeat_interval_ms, self.max_heartbeat_interval_ms
        return _of_group(entries, "streams.heartbeat.interval.ms", self.heartbeat_interval_ms, low, high)

    def assignment_interval_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        low, high = self.min_assignment_interval_ms, self.max_assignment_interval_ms
        now = self.assignment_interval_now
        default = self.assignment_interval_ms if now is None else now()
        return _of_group(entries, "streams.assignment.interval.ms", default, low, high)

    def initial_delay_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        return _of_group(entries, "streams.initial.rebalance.delay.ms", self.initial_rebalance_delay_ms, 0, 2**31 - 1)

    def standby_replicas_of(self, entries: Mapping[str, str]) -> int:
        """Of a group with these entries."""
        return _of_group(
            entries, "streams.num.standby.replicas", self.num_standby_replicas, 0, self.max_standby_replicas
        )


def _of_group(entries: Mapping[str, str], key: str, default: int, low: int, high: int) -> int:
    text = entries.get(key)
    return default if text is None else max(low, min(high, int(text)))


def streams_group_config(get: Callable[[str], Any]) -> StreamsGroupConfig:
    """From the broker's configuration; `get` returns the typed value that a key has now."""
    return StreamsGroupConfig(
        session_timeout_ms=get("group.streams.session.timeout.ms"),
        min_session_timeout_ms=get("group.streams.min.session.timeout.ms"),
        max_session_timeout_ms=get("group.streams.max.session.timeout.ms"),
        heartbeat_interval_ms=get("group.streams.heartbeat.interval.ms"),
        min_heartbeat_interval_ms=get("group.streams.min.heartbeat.interval.ms"),
        max_heartbeat_interval_ms=get("group.streams.max.heartbeat.interval.ms"),
        assignment_interval_ms=get("group.streams.assignment.interval.ms"),
        assignment_interval_now=lambda: get("group.streams.assignment.interval.ms"),
        min_assignment_interval_ms=get("group.streams.min.assignment.interval.ms"),
        max_assignment_interval_ms=get("group.streams.max.assignment.interval.ms"),
        initial_rebalance_delay_ms=get("group.streams.initial.rebalance.delay.ms"),
        num_standby_replicas=get("group.streams.num.standby.replicas"),
        max_standby_replicas=get("group.streams.max.standby.replicas"),
        max_size=get("group.streams.max.size"),
    )
