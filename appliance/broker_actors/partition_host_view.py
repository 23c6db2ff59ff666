"""What a partition and its host know of each other, and how a leadership began."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from appliance.base.clock import Clock
from appliance.base.errors import ErrorCode
from appliance.controller.image import PartitionState
from appliance.log.errors import LogWriteFailed
from appliance.partition.leader_start import Earlier

if TYPE_CHECKING:
    from appliance.broker_actors.hosted_partition import HostedPartition

OnCommitted = Callable[[ErrorCode, int], None]
"""Gets the outcome and the base offset."""


class Ticking(Protocol):
    """What a partition needs of its host."""

    dirty: list[HostedPartition]
    serving: bool
    soft_lease: bool
    clock: Clock

    def begin_tick(self) -> None: ...

    def write_now(self, hosted: HostedPartition) -> None: ...

    def write_failed(self, error: LogWriteFailed) -> None: ...

    def run_flush(self, flush: Callable[[], None], done: Callable[[Exception | None], None]) -> None: ...

    def went_offline(self, hosted: HostedPartition) -> None: ...

    def advanced(self, hosted: HostedPartition) -> None: ...

    def propose_isr(self, hosted: HostedPartition, isr: tuple[int, ...], partition_epoch: int) -> None: ...

    def metadata_wanted(self, hosted: HostedPartition, leader_epoch: int) -> None: ...


class Leadership(NamedTuple):
    """How this broker began to lead."""

    state: PartitionState
    started_ms: int
    """Of the monotonic clock."""
    replica_lag_time_max_ms: int
    lease_ms: int = 0


def earlier_leaders_of(state: PartitionState) -> list[Earlier]:
    """Who may still answer as the leader, as the metadata has it."""
    return [Earlier(one.broker_id, one.broker_epoch, one.live) for one in state.earlier_leaders]
