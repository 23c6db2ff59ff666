"""What the operator may say about share groups: for all of them, and for one (`share.*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_Range = tuple[int, int, int]
"""Default, lowest and highest value for one group."""


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Values of the broker's configuration, with Kafka's defaults. A group's own value is kept within its bounds."""

    session_timeout_ms: _Range = (45_000, 45_000, 60_000)
    """`group.share.session.timeout.ms`"""
    heartbeat_interval_ms: _Range = (5_000, 5_000, 15_000)
    """`group.share.heartbeat.interval.ms`"""
    assignment_interval_ms: _Range = (1_000, 0, 15_000)
    """`group.share.assignment.interval.ms`: the least time between two targets (KIP-1263)."""
    assignment_interval_now: Callable[[], int] | None = None
    """The default as it is now, where it may be altered while the broker runs."""
    record_lock_duration_ms: _Range = (30_000, 15_000, 60_000)
    """`group.share.record.lock.duration.ms`: how long a member has for a record."""
    delivery_count_limit: _Range = (5, 2, 10)
    """`group.share.delivery.count.limit`"""
    partition_max_record_locks: _Range = (2_000, 100, 4_000)
    """`group.share.partition.max.record.locks`"""
    max_size: int = 200
    """`group.share.max.size`"""
    max_sessions: int = 2_000
    """`group.share.max.share.sessions`"""
    initialize_retry_interval_ms: int = 30_000
    """`group.share.initialize.retry.interval.ms`"""

    def session_timeout_of(self, entries: Mapping[str, str]) -> int:
        return _of_group(entries, "share.session.timeout.ms", self.session_timeout_ms)

    def heartbeat_interval_of(self, entries: Mapping[str, str]) -> int:
        return _of_group(entries, "share.heartbeat.interval.ms", self.heartbeat_interval_ms)

    def assignment_interval_of(self, entries: Mapping[str, str]) -> int:
        default, low, high = self.assignment_interval_ms
        now = self.assignment_interval_now
        return _of_group(entries, "share.assignment.interval.ms", (default if now is None else now(), low, high))

    def partition_limits_of(self, entries: Mapping[str, str]) -> PartitionLimits:
        """Of the partitions of a group with these entries."""
        return PartitionLimits(
            lock_duration_ms=_of_group(entries, "share.record.lock.duration.ms", self.record_lock_duration_ms),
            delivery_count_limit=_of_group(entries, "share.delivery.count.limit", self.delivery_count_limit),
            max_record_locks=_of_group(entries, "share.partition.max.record.locks", self.partition_max_record_locks),
            renewing=entries.get("share.renew.acknowledge.enable", "true").lower() == "true",
        )


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """What holds for a partition of one share group."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renewing: bool = True
    """Whether a member may ask for more time."""


def _of_group(entries: Mapping[str, str], key: str, bounds: _Range) -> int:
    default, low, high = bounds
    text = entries.get(key)
    return default if text is None else max(low, min(high, int(text)))


def share_group_config(get: Callable[[str], Any]) -> ShareGroupConfig:
    """From the broker's configuration; `get` returns the typed value that a key has now."""

    def bounds(*names: str) -> _Range:
        default, low, high = map(get, names)
        return default, low, high

    return ShareGroupConfig(
        session_timeout_ms=bounds(
            "group.share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
        ),
        heartbeat_interval_ms=bounds(
            "group.share.heartbeat.interval.ms",
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.heartbeat.interval.ms",
        ),
        assignment_interval_ms=bounds(
            "group.share.assignment.interval.ms",
            "group.share.min.assignment.interval.ms",
            "group.share.max.assignment.interval.ms",
        ),
        assignment_interval_now=lambda: get("group.share.assignment.interval.ms"),
        record_lock_duration_ms=bounds(
            "group.share.record.lock.duration.ms",
            "group.share.min.record.lock.duration.ms",
            "group.share.max.record.lock.duration.ms",
        ),
        delivery_count_limit=bounds(
            "group.share.delivery.count.limit",
            "group.share.min.delivery.count.limit",
            "group.share.max.delivery.count.limit",
        ),
        partition_max_record_locks=bounds(
            "group.share.partition.max.record.locks",
            "group.share.min.partition.max.record.locks",
            "group.share.max.partition.max.record.locks",
        ),
        max_size=get("group.share.max.size"),
        max_sessions=get("group.share.max.share.sessions"),
        initialize_retry_interval_ms=get("group.share.initialize.retry.interval.ms"),
    )
