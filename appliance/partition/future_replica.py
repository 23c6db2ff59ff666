"""What a replica does next on its way from one data directory of its broker to another (KIP-113). Pure.

It copies up to the end of the log in use, never faster than `replica.alter.log.dirs.io.max.bytes.per.second`; follows
where that log was cut; and takes over when it has everything, as durable as it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from appliance.partition.replication_quota import ReplicationQuota

COPY_BYTES = 1 << 20
"""What is copied at a time, unless less is allowed in a second."""
WAIT_MAX_MS = 1_000
"""Then it is looked again: the limit may have changed."""
HOLD_AFTER = 3
"""So often the log in use may have become durable further on meanwhile; then its flushes wait for the swap."""

Epochs = Sequence[tuple[int, int]]
"""(leader epoch, first offset), in rising order."""


class Extent(NamedTuple):
    """A log: where it begins on this disk, where it ends, and whose records it has."""

    start: int
    end: int
    epochs: Epochs


@dataclass(frozen=True, slots=True)
class Copy:
    max_bytes: int


@dataclass(frozen=True, slots=True)
class CutTo:
    offset: int


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """The log in use begins behind what was copied, or has another history."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make everything durable; `hold` the flushes of the log in use until the swap."""

    hold: bool


@dataclass(frozen=True, slots=True)
class Wait:
    ms: int


Step = Copy | CutTo | BeginAnew | Prepare | Wait


@dataclass(slots=True)
class FutureReplica:
    """One replica on its way. `copied` and `prepared` tell it what was done."""

    quota: ReplicationQuota
    """One for all that are on their way on a broker."""
    tries: int = field(default=0)
    """How often it was prepared since it last had to copy much."""

    def next_step(self, log: Extent, future: Extent, rate: int, now_ms: int) -> Step:
        """When not even that has to be done, the shell may swap."""
        if future.end < log.start:
            return BeginAnew()
        agreed = agreed_end(log, future)
        if agreed < future.end:
            return CutTo(agreed) if agreed > log.start else BeginAnew()
        if future.end < log.end:
            wait_ms = self.quota.wait_ms(rate, now_ms)
            return Wait(min(wait_ms, WAIT_MAX_MS)) if wait_ms > 0 else Copy(min(COPY_BYTES, rate))
        return Prepare(hold=self.tries >= HOLD_AFTER)

    def copied(self, size: int, rate: int, now_ms: int) -> None:
        self.quota.moved(size, rate, now_ms)

    def prepared(self) -> None:
        self.tries += 1


def agreed_end(log: Extent, future: Extent) -> int:
    """Up to where both have the same records: within one leader epoch there is one record for an offset."""
    if not future.epochs:
        return min(log.end, future.end)
    known = dict(_ranges(log))
    for epoch, end in reversed(list(_ranges(future))):
        if epoch in known:
            return min(end, known[epoch])
    return -1


def _ranges(extent: Extent) -> list[tuple[int, int]]:
    """(leader epoch, where it ends)"""
    ends = [*(start for _, start in extent.epochs[1:]), extent.end]
    return [(epoch, end) for (epoch, _), end in zip(extent.epochs, ends, strict=False)]
