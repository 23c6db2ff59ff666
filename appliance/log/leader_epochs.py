"""Which leader epoch begins at which offset (KIP-101, KIP-279): what followers truncate by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochCache:
    """The epochs of a log in rising order, each with the offset of its first record.

    It lies in memory; the log stores it when it flushes. What was not stored stands in the batches above the recovery
    point.
    """

    __slots__ = ("_end_offset", "epochs", "starts", "unstored")

    def __init__(self, end_offset: Callable[[], int], entries: Iterable[tuple[int, int]] = ()) -> None:
        self._end_offset = end_offset
        self.epochs: list[int] = []
        self.starts: list[int] = []
        self.unstored = False
        """Whether the file does not show the present state."""
        for epoch, start in entries:
            self.epochs.append(epoch)
            self.starts.append(start)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.epochs[-1] if self.epochs else UNDEFINED_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) in rising order."""
        return list(zip(self.epochs, self.starts, strict=True))

    def assign(self, epoch: int, start: int) -> None:
        """Let `epoch` begin at `start`. Newer epochs and later starts give way; a known epoch keeps its start."""
        if epoch < 0 or (self.epochs and epoch == self.epochs[-1]):
            return
        while self.epochs and (self.epochs[-1] >= epoch or self.starts[-1] >= start):
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start)
        self.unstored = True

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and where it ends; (-1, -1) when the epoch is newer than all.

        With an epoch older than all, the answer names that epoch itself and the start of the oldest known.
        """
        if epoch == UNDEFINED_EPOCH or not self.epochs or epoch > self.epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.epochs[-1]:
            return epoch, self._end_offset()
        slot = bisect_right(self.epochs, epoch)
        return (self.epochs[slot - 1] if slot else epoch), self.starts[slot]

    def epoch_for(self, offset: int) -> int:
        """The leader epoch of the record at `offset`, -1 if it is older than all known epochs."""
        slot = bisect_right(self.starts, offset)
        return self.epochs[slot - 1] if slot else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or above the new log end."""
        while self.starts and self.starts[-1] >= end_offset:
            self.epochs.pop()
            self.starts.pop()
            self.unstored = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or below the new log start; the one that holds it begins there now."""
        slot = bisect_right(self.starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self.starts[0] == start_offset):
            return
        del self.epochs[:slot]
        del self.starts[:slot]
        self.starts[0] = start_offset
        self.unstored = True

    def clear(self) -> None:
        self.unstored = bool(self.epochs) or self.unstored
        self.epochs.clear()
        self.starts.clear()
