"""Where the records of a fetch lie, and how its bytes are shared out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from appliance.base.errors import ErrorCode


class Source(IntEnum):
    """Where a fetch at an offset is served from."""

    NOTHING = 0
    """The reader is at the end of what it may see."""
    LOCAL = 1
    REMOTE = 2
    """Below the local log start: the object store has it."""
    OUT_OF_RANGE = 3


def source_of(
    fetch_offset: int, *, log_start_offset: int, local_log_start_offset: int, visible_end: int, log_end_offset: int
) -> Source:
    """Where the batch with `fetch_offset` lies for a reader who may see up to `visible_end`.

    An offset between what is visible and the log end is no error: the reader waits there, as after a change of leader
    whose high watermark is still behind.
    """
    if fetch_offset < log_start_offset or fetch_offset > log_end_offset:
        return Source.OUT_OF_RANGE
    if fetch_offset >= visible_end:
        return Source.NOTHING
    return Source.LOCAL if fetch_offset >= local_log_start_offset else Source.REMOTE


def leader_epoch_error(requested: int, own: int) -> ErrorCode:
    """Compare the leader epoch that a client knows (-1: none) with the leader's (KIP-320)."""
    if requested < 0 or requested == own:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if requested < own else ErrorCode.UNKNOWN_LEADER_EPOCH


@dataclass(slots=True)
class ByteBudget:
    """How many bytes the partitions of one fetch may still bring, in the order of the request.

    The first batch of the answer is given whole, even above the limits, so that a reader never starves.
    """

    left: int
    nothing_yet: bool = True

    def share(self, partition_max_bytes: int) -> int:
        """Bytes that the next partition may bring."""
        return max(0, min(self.left, partition_max_bytes))

    def taken(self, size: int) -> None:
        if size:
            self.left -= size
            self.nothing_yet = False
