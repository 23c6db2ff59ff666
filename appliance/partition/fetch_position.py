"""Whether what a follower has is a beginning of what its leader has (P3, KIP-595). Pure."""

from __future__ import annotations

from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.log.leader_epochs import LeaderEpochCache


class Verdict(NamedTuple):
    """What the leader thinks of a position; with neither error nor diverging epoch it is a beginning of its own log."""

    error: ErrorCode = ErrorCode.NONE
    diverging_epoch: int = -1
    diverging_end_offset: int = -1

    @property
    def matches(self) -> bool:
        return not self.error and self.diverging_epoch < 0


MATCHES = Verdict()


def judge(
    epochs: LeaderEpochCache,
    last_fetched_epoch: int,
    offset: int,
    *,
    log_start_offset: int,
    local_log_start_offset: int,
    log_end_offset: int,
) -> Verdict:
    """A follower has everything before `offset`, the last of it from `last_fetched_epoch` (-1: its log is empty)."""
    if last_fetched_epoch >= 0:
        epoch, end_offset = epochs.end_offset_for(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < offset:
            return Verdict(diverging_epoch=epoch, diverging_end_offset=end_offset)
    if not log_start_offset <= offset <= log_end_offset:
        return Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset < local_log_start_offset:
        return Verdict(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
    return MATCHES
