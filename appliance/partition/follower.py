"""A follower of a partition: where it fetches, what it cuts off, up to where its data is committed. Pure.

It asks its leader for what comes behind its own log, naming the epoch of its last record. A leader that has another
history says where that epoch ended there; the follower cuts to the smaller of that and its own end of the epoch, and
asks again (P3, KIP-595). Truncation goes by epoch alone, never to the high watermark, which is the smaller of the
leader's and its own end and moves only forward, but for a cut (P4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from appliance.base.errors import ErrorCode
from appliance.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from appliance.partition.events import (
    AppendFetched,
    FetchAnswer,
    FetchLater,
    FollowerEffect,
    RaiseLogStart,
    StartAnew,
    StartFromTier,
    TruncateTo,
)

FIRST_BACKOFF_MS = 20
"""The first wait after a refusal: most come from a leader that has not heard of its election yet."""


class FetchPosition(NamedTuple):
    """What a fetch names."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int


@dataclass(slots=True)
class PartitionFollower:
    """Following one leader in one leader epoch."""

    leader_id: int
    leader_epoch: int
    epochs: LeaderEpochCache
    """Of the follower's own log."""
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    backoff_max_ms: int
    failures: int = field(default=0)
    """Answers in a row that brought nothing forward."""
    leader_high_watermark: int = field(default=-1)

    @property
    def position(self) -> FetchPosition:
        """Where the next fetch begins. An empty log has no last epoch."""
        epoch = UNDEFINED_EPOCH
        if self.log_end_offset > 0:
            epoch = self.epochs.epoch_for(self.log_end_offset - 1)
        return FetchPosition(self.leader_epoch, self.log_end_offset, epoch)

    def appended(self, end_offset: int) -> int:
        """The log ends at `end_offset` now, on disk; returns the high watermark."""
        self.log_end_offset = end_offset
        return self._advance()

    def cut(self, log_start_offset: int, end_offset: int) -> int:
        """The log was truncated or begun anew; returns the high watermark, which may have gone back with it."""
        self.log_start_offset, self.log_end_offset = log_start_offset, end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        return self._advance()

    def failed(self) -> FetchLater:
        """The records of the last answer could not be taken: damaged on the way, or the disk refuses."""
        return self._later(ErrorCode.KAFKA_STORAGE_ERROR)

    def answered(self, answer: FetchAnswer) -> list[FollowerEffect]:
        """Take the leader's answer. One that was asked for in another epoch, or from another end, is of no use."""
        if answer.leader_epoch != self.leader_epoch or answer.fetch_offset != self.log_end_offset:
            return []
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(answer)
        if answer.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            return [StartFromTier(answer.log_start_offset)]
        if answer.error is not ErrorCode.NONE:
            return [self._later(answer.error)]
        if answer.diverging_epoch >= 0:
            return self._diverged(answer)
        self.failures = 0
        self.leader_high_watermark = answer.high_watermark
        effects: list[FollowerEffect] = []
        if answer.has_records:
            effects.append(AppendFetched())
        self._advance()
        if answer.log_start_offset > self.log_start_offset:
            # Never above its own end: what it has not fetched yet it cannot have lost.
            log_start_offset = min(answer.log_start_offset, self.log_end_offset)
            if log_start_offset > self.log_start_offset:
                self.log_start_offset = log_start_offset
                effects.append(RaiseLogStart(log_start_offset))
        return effects

    def _advance(self) -> int:
        offset = min(self.leader_high_watermark, self.log_end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
        return self.high_watermark

    def _diverged(self, answer: FetchAnswer) -> list[FollowerEffect]:
        _, own_end = self.epochs.end_offset_for(answer.diverging_epoch)
        end = answer.diverging_end_offset if own_end < 0 else min(own_end, answer.diverging_end_offset)
        if not 0 <= end < self.log_end_offset:
            # It would cut nothing, so asking again would bring the same answer.
            return [self._later(ErrorCode.UNKNOWN_SERVER_ERROR)]
        if end < self.log_start_offset:
            return [StartAnew(end)]
        return [TruncateTo(end)]

    def _out_of_range(self, answer: FetchAnswer) -> list[FollowerEffect]:
        """Below the leader's start: begin anew there. Above its end, with a history that fits: wait for it."""
        if answer.log_start_offset > self.log_end_offset:
            return [StartAnew(answer.log_start_offset)]
        return [self._later(answer.error)]

    def _later(self, reason: ErrorCode) -> FetchLater:
        delay_ms = min(FIRST_BACKOFF_MS << min(self.failures, 16), self.backoff_max_ms)
        self.failures += 1
        return FetchLater(delay_ms, reason)
