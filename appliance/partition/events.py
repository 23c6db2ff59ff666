"""What a partition's leader is told, and what it asks for."""

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
class Tick:
    """Time has passed."""


Event = Appended | FollowerFetched | IsrDecided | IsrRefused | MinInsyncReplicasSet | Tick


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
