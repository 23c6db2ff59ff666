"""Runs of offsets that are alike, of which a share partition is made, and what is said of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.share_groups.state_stored import AVAILABLE, Batch


class ReadBatch(NamedTuple):
    """A batch that was read from the log, by its offsets."""

    first_offset: int
    last_offset: int
    is_delivered: bool = True
    """Not: nobody gets it, as it holds a marker, or records of an aborted transaction that nobody wants."""


class Acquired(NamedTuple):
    """Records that a member has now."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Said(NamedTuple):
    """What a member says of records: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


@dataclass(eq=False, slots=True)
class Operation:
    """What a member said at once, on its way to the share coordinator."""

    done: Callable[[ErrorCode], None] | None = None
    """For the owner: whom to tell."""


class Run:
    """Offsets in the same state. Mutable: there may be thousands."""

    __slots__ = ("count", "due_ms", "first", "goal", "last", "member_id", "operation", "state")

    def __init__(self, first: int, last: int, state: int = AVAILABLE, count: int = 0) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member_id = ""
        self.due_ms = 0
        """When the lock is over."""
        self.operation: Operation | None = None
        self.goal = state
        """The state after the operation."""

    def cut_at(self, offset: int) -> Run:
        """Keep what lies before; returns the rest."""
        rest = Run(offset, self.last, self.state, self.count)
        rest.member_id, rest.due_ms, rest.operation, rest.goal = self.member_id, self.due_ms, self.operation, self.goal
        self.last = offset - 1
        return rest

    def is_like(self, other: Run) -> bool:
        return (
            self.state == other.state
            and self.count == other.count
            and self.member_id == other.member_id
            and self.due_ms == other.due_ms
            and self.operation is other.operation
            and self.goal == other.goal
        )

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return f"[{self.first}, {self.last}] state {self.state} count {self.count} of {self.member_id!r}"


def by_kind(said: Said, start_offset: int) -> list[tuple[int, int, int]]:
    """Ranges of the same type, without what lies before the start."""
    first, last, types = said
    if len(types) == 1:
        return [(max(first, start_offset), last, types[0])]
    rows: list[tuple[int, int, int]] = []
    for offset, kind in enumerate(types, first):
        if offset < start_offset:
            continue
        if rows and rows[-1][2] == kind:
            rows[-1] = (rows[-1][0], offset, kind)
        else:
            rows.append((offset, offset, kind))
    return rows


def joined(rows: list[Batch]) -> tuple[Batch, ...]:
    """In order, each range once."""
    joined: list[Batch] = []
    for row in sorted(rows):
        last = joined[-1] if joined else None
        if last is not None and last.last_offset >= row.last_offset:
            continue
        if last is not None and last.last_offset >= row.first_offset:
            row = row._replace(first_offset=last.last_offset + 1)
        if last is not None and last.last_offset + 1 == row.first_offset and last[2:] == row[2:]:
            joined[-1] = last._replace(last_offset=row.last_offset)
        else:
            joined.append(row)
    return tuple(joined)


def told_in(taken: list[Acquired], batch_size: int) -> list[Acquired]:
    """Neighbours that were handed out equally often as one, up to the size that is best."""
    told: list[Acquired] = []
    for each in taken:
        last = told[-1] if told else None
        if (
            last is not None
            and last.last_offset + 1 == each.first_offset
            and last.delivery_count == each.delivery_count
            and (batch_size <= 0 or each.last_offset - last.first_offset < batch_size)
        ):
            told[-1] = last._replace(last_offset=each.last_offset)
        else:
            told.append(each)
    return told
