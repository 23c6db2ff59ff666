"""Cutting a log at its end: what followers do where their history leaves the leader's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from appliance.base.errors import invariant
from appliance.log.compacted_log import CompactedLog
from appliance.log.open_files import CUT_SUFFIX
from appliance.log.producer_recovery import recover_producers, snapshot_offsets
from appliance.log.producer_snapshot import snapshot_from_bytes
from appliance.log.recovery import RecoveredLog, recover_segments
from appliance.log.segment import Segment
from appliance.log.segment_copy import replaced
from appliance.records.batch import HEADER_BYTES, parse_header


class CutLog(CompactedLog):
    """A log that can be cut, and begun anew. `PartitionLog` is the whole."""

    __slots__ = ("before_cut",)

    before_cut: Callable[[], None] | None
    """Makes the recovery point durable that has just been lowered. Blocks; raises OSError."""

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`; a batch that holds it goes whole.

        For followers. Slices that are still on their way keep their bytes. Raises OSError, CorruptBatch.
        """
        invariant(not self._staged, f"{self!r}: a cut between stage and write_staged")
        if offset >= self.log_end_offset:
            return
        self._settle()
        if offset > self.segments[0].base_offset:
            offset = self._start_of_batch_at(offset)
        if offset <= self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset, min(self.log_start_offset, offset))
            return
        self._announce_cut(offset)
        is_last = self.segments[-1].base_offset < offset
        while self.segments[-1].base_offset >= offset:
            self._cut_away(self.segments.pop())
        if not is_last:
            self._disk.fsync_directory(self.directory)
        segment = self.segments[-1]
        position = segment.position_of(offset)
        if segment.references:
            segment = self.segments[-1] = replaced(segment, position, self._files)
        else:
            self._disk.truncate(segment.open(), position)
        # What is gone must not come back between what comes now: no later look could tell.
        self._disk.fdatasync(segment.open())
        segment.cut(offset, position)
        found = recover_segments(
            [segment], min(self.recovery_point, offset), clean=True, dense=False, now_ms=self._clock.now_ms()
        )
        self.log_end_offset = offset
        # A batch that holds the log start has gone whole.
        self.log_start_offset = min(self.log_start_offset, offset)
        self._forget_above(offset)
        found_log = RecoveredLog(self.segments, offset, offset)
        recover_producers(self.directory, found_log, self.producer_state, self._clock.now_ms())
        self._set_end(max(offset, found.end_offset))

    def truncate_fully_and_start_at(
        self,
        offset: int,
        log_start_offset: int | None = None,
        *,
        epochs: Iterable[tuple[int, int]] = (),
        producers: bytes = b"",
    ) -> None:
        """Throw all away and begin anew, empty, at `offset`.

        Args:
            log_start_offset: where the log starts, if not there: what lies between is in the tier.
            epochs: the history below `offset`: (leader epoch, start offset) in rising order.
            producers: the producer snapshot at `offset`.

        Raises:
            OSError: the disk refuses. CorruptSnapshot: of `producers`; nothing was changed.
        """
        snapshot = snapshot_from_bytes(producers) if producers else []
        invariant(not self._staged, f"{self!r}: a cut between stage and write_staged")
        self._settle()
        self._announce_cut(offset)
        # The first one last: what a crash leaves is then still the beginning of the log.
        if len(self.segments) > 1:
            while len(self.segments) > 1:
                self._cut_away(self.segments.pop())
            self._disk.fsync_directory(self.directory)
        while self.segments:
            self._cut_away(self.segments.pop())
        for taken_at in snapshot_offsets(self._disk, self.directory):
            self._disk.unlink(self._snapshot_path(taken_at))
        self.producer_state.clear()
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.leader_epochs.clear()
        self._begin_at(offset)
        # A log without its first segment would seem to begin later.
        self._disk.fsync_directory(self.directory)
        self._forget_above(offset)
        for epoch, start in epochs:
            self.leader_epochs.assign(epoch, start)
        self.producer_state.load(snapshot)
        self._pending_snapshots = {offset: self.producer_state.copy()} if snapshot else {}

    def _start_of_batch_at(self, offset: int) -> int:
        """Where the batch begins that holds `offset`; `offset` itself when none does."""
        segment = next(segment for segment in reversed(self.segments) if segment.base_offset < offset)
        position = segment.position_of(offset)
        if position >= segment.size_bytes:
            return offset
        return min(offset, parse_header(segment.disk.pread(segment.open(), HEADER_BYTES, position)).base_offset)

    def _announce_cut(self, offset: int) -> None:
        """Before a cut below the recovery point: what comes in its place must not be taken for flushed at a start."""
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.before_cut is not None:
                self.before_cut()

    def _cut_away(self, segment: Segment) -> None:
        due_ms = self._clock.now_ms() + self.config.file_delete_delay_ms
        segment.condemn()
        for path in segment.paths:
            self._reaper.condemn(path, due_ms, suffix=CUT_SUFFIX)

    def _forget_above(self, offset: int) -> None:
        self._cuts += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.stored_recovery_point = min(self.stored_recovery_point, offset)
        self.cleaned_offset = min(self.cleaned_offset, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._pending_snapshots = {at: entries for at, entries in self._pending_snapshots.items() if at <= offset}
