"""A partition in the world of transactions: it takes rows and markers as a leader does, and never fails."""

from __future__ import annotations

from dataclasses import dataclass, field

Tag = tuple[str, int, int]
"""A try of a producer: its transactional id, its number under it, its turn."""


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Row:
    """A record in a partition: which try of which producer wrote it."""

    tag: Tag
    producer_id: int
    epoch: int


@dataclass
class Partition:
    """An old epoch is refused, and a marker ends what its producer has open."""

    name: tuple[str, int]
    epochs: dict[int, int] = field(default_factory=dict)
    coordinators: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Row]] = field(default_factory=dict)
    outcome: dict[Tag, bool] = field(default_factory=dict)
    """Whether what a try wrote here was committed."""

    def may_write(self, row: Row) -> bool:
        return row.epoch >= self.epochs.get(row.producer_id, -1)

    def write(self, row: Row) -> bool:
        if not self.may_write(row):
            return False
        self.epochs[row.producer_id] = row.epoch
        self.open.setdefault(row.producer_id, []).append(row)
        return True

    def is_late(self, producer_id: int, epoch: int, coordinator_epoch: int, new_epochs: bool) -> bool:
        """Whether a marker comes too late to mean anything."""
        known = self.epochs.get(producer_id, -1)
        # With new epochs the marker's is above that of what it ends: an equal one comes a second time.
        is_old = epoch <= known if new_epochs else epoch < known
        return is_old or coordinator_epoch < self.coordinators.get(producer_id, 0)

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, commit: bool, new_epochs: bool) -> bool:
        """End what is open; whether its coordinator need not come again."""
        if self.is_late(producer_id, epoch, coordinator_epoch, new_epochs):
            return True
        self.epochs[producer_id] = epoch
        self.coordinators[producer_id] = coordinator_epoch
        for row in self.open.pop(producer_id, []):
            if self.outcome.setdefault(row.tag, commit) != commit:
                raise Violation(f"{row.tag} ended both ways in {self.name}")
        return True
