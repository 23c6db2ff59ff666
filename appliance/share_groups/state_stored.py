"""How far the partitions of share groups are, as `__share_group_state` says. `replay` is the only method that writes.

The state of a partition is a start offset, and for offsets behind it who is done with them, or how often they have been
handed out; what no batch names has never been.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from appliance.base.ids import uuid_to_text

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
"""Delivery states as they stand in records and requests."""


class StateKey(NamedTuple):
    """One partition of one share group."""

    group_id: str
    topic_id: uuid.UUID
    partition: int

    def text(self) -> str:
        """What decides who coordinates it."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


class Batch(NamedTuple):
    """Offsets in the same state."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """How far a partition of a share group is."""

    state_epoch: int
    start_offset: int
    leader_epoch: int = -1
    snapshot_epoch: int = 0
    delivery_complete_count: int = -1
    batches: tuple[Batch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """All that is known of a partition; None ends it."""

    key: StateKey
    state: PartitionState | None


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """What has changed since the snapshot, or the update before."""

    key: StateKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    """-1: it has not."""
    delivery_complete_count: int
    batches: tuple[Batch, ...]


StateRecord = SnapshotRecord | UpdateRecord


def combined(before: Iterable[Batch], after: Iterable[Batch], start_offset: int) -> tuple[Batch, ...]:
    """The later ones laid over the earlier ones, without what lies before the start; neighbours that are alike join."""
    laid: list[Batch] = sorted(before)
    for new in after:
        kept: list[Batch] = []
        for old in laid:
            if old.last_offset < new.first_offset or old.first_offset > new.last_offset:
                kept.append(old)
                continue
            if old.first_offset < new.first_offset:
                kept.append(old._replace(last_offset=new.first_offset - 1))
            if old.last_offset > new.last_offset:
                kept.append(old._replace(first_offset=new.last_offset + 1))
        laid = [*kept, new]
    joined: list[Batch] = []
    for batch in sorted(laid):
        if batch.last_offset < start_offset:
            continue
        if batch.first_offset < start_offset:
            batch = batch._replace(first_offset=start_offset)
        last = joined[-1] if joined else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            joined[-1] = last._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)


class StoredStates:
    """The states of one partition of `__share_group_state`."""

    def __init__(self) -> None:
        self.states: dict[StateKey, PartitionState] = {}
        self.updates: dict[StateKey, int] = {}
        """How many updates each has had since its snapshot."""
        self.snapshot_at: dict[StateKey, int] = {}
        """Where in the log the last snapshot of each stands."""
        self.position = 0
        """Where the next record stands that is replayed."""

    def replay(self, record: StateRecord) -> None:
        """Take over a committed record."""
        position, key = self.position, record.key
        self.position += 1
        if isinstance(record, UpdateRecord):
            state = self.states.get(key)
            if state is None or state.snapshot_epoch != record.snapshot_epoch:
                return
            start_offset = state.start_offset if record.start_offset < 0 else record.start_offset
            self.states[key] = replace(
                state,
                leader_epoch=record.leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=record.delivery_complete_count,
                batches=combined(state.batches, record.batches, start_offset),
            )
            self.updates[key] = self.updates.get(key, 0) + 1
            return
        self.updates.pop(key, None)
        if record.state is None:
            self.states.pop(key, None)
            self.snapshot_at.pop(key, None)
        else:
            self.states[key] = record.state
            self.snapshot_at[key] = position

    @property
    def needed_from(self) -> int:
        """No record below this offset says anything that a later one does not."""
        return min(self.snapshot_at.values(), default=self.position)
