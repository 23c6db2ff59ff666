"""What a partition's leader and followers are told, and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.base.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's own log ends here now, on disk."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class FollowerFetched:
    """A follower asked for `offset`, so it has everything before; its last fetched epoch matched."""

    replica_id: int
    broker_epoch: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class IsrDecided:
    """The committed partition record, from the metadata log or from the answer to AlterPartition."""

    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IsrRefused:
    """AlterPartition was refused, or its answer never came: another copy of it may still arrive (P8)."""


@dataclass(frozen=True, slots=True)
class MinInsyncReplicasSet:
    """The topic's `min.insync.replicas` changed."""

    min_insync_replicas: int


@dataclass(frozen=True, slots=True)
class ReplicasFenced:
    """These replicas are fenced, stop, or are not registered; all others are well."""

    replica_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = Appended | FollowerFetched | IsrDecided | IsrRefused | MinInsyncReplicasSet | ReplicasFenced | Tick


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything before `offset` is committed."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send AlterPartition with this ISR at this partition epoch; at most one is in flight."""

    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer this replica's request with an error."""

    replica_id: int
    error: ErrorCode


Effect = AdvanceHighWatermark | ProposeIsr | Refuse


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What a leader answered to a follower's fetch for one partition."""

    leader_epoch: int
    """In which the follower had asked."""
    fetch_offset: int
    error: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: int = -1
    diverging_end_offset: int = -1
    has_records: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log: what lies at or above `offset` is not the leader's."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAnew:
    """Throw the log away and begin, empty, at `offset`: the leader has nothing below it any more."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartFromTier:
    """Below the leader's disk only the object store has the records: begin where it says."""

    leader_log_start_offset: int


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append the records of the answer as they are."""


@dataclass(frozen=True, slots=True)
class RaiseLogStart:
    """Records below `offset` are gone for every reader."""

    offset: int


@dataclass(frozen=True, slots=True)
class FetchLater:
    """Do not ask for this partition before `delay_ms` have passed."""

    delay_ms: int
    reason: ErrorCode


FollowerEffect = TruncateTo | StartAnew | StartFromTier | AppendFetched | RaiseLogStart | FetchLater
