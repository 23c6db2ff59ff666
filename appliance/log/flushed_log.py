"""Flushing a log: what is due, and what a flush makes durable while the log goes on."""

from __future__ import annotations

from appliance.log.cut_log import CutLog
from appliance.log.errors import LogWriteFailed
from appliance.log.flush import Flush

SEGMENTS_PER_FLUSH_MAX = 32
"""Segments that one flush holds open."""


class FlushedLog(CutLog):
    """A log that is made durable, part by part. `PartitionLog` is the whole."""

    __slots__ = ("_flushed_ms", "_folder_created", "flushes_under_way")

    _flushed_ms: int
    _folder_created: bool
    """Whether the folder itself may not be durable."""
    flushes_under_way: int
    """Prepared, and not yet told how they ended."""

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush, or a closed segment waits for one."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0:
            return False
        if self.segments[-1].base_offset > self.recovery_point or unflushed >= self.config.flush_messages:
            return True
        return now_ms - self._flushed_ms >= self.config.flush_ms

    def prepare_flush(self, *, include_active: bool = True) -> Flush | None:
        """What must be made durable, for a helper thread to `run`; then call `flushed` or `flush_failed` with it.

        After a start many segments may wait: the oldest come first. None if nothing is to be done.

        Raises:
            LogWriteFailed: the index files cannot be appended to.
        """
        end_offset = self.log_end_offset if include_active else self.segments[-1].base_offset
        waiting = [
            segment
            for segment in self.segments
            if segment.next_offset > self.recovery_point and (include_active or not segment.is_active)
        ]
        if len(waiting) > SEGMENTS_PER_FLUSH_MAX:
            del waiting[SEGMENTS_PER_FLUSH_MAX:]
            end_offset = waiting[-1].next_offset
        snapshots = {at: entries for at, entries in self._pending_snapshots.items() if at <= end_offset}
        if not waiting and not snapshots and not self.leader_epochs.unstored and not self._file_created:
            return None
        # Retained before the next is opened: that may take a descriptor away.
        for number, segment in enumerate(waiting):
            segment.retain()
            try:
                segment.open()
                if segment.is_active:
                    segment.store_indexes()
                else:
                    segment.finish_indexes()
            except OSError as error:
                for retained in waiting[: number + 1]:
                    retained.release()
                raise LogWriteFailed(f"storing the indexes of {segment.path}", error, self.directory) from error
        epochs = self.leader_epochs.entries if self.leader_epochs.unstored else None
        flush = Flush(
            self._disk,
            self.directory,
            end_offset,
            waiting,
            snapshots,
            epochs,
            self._file_created,
            self._folder_created,
            self._cuts,
        )
        self._file_created = self._folder_created = False
        self.flushes_under_way += 1
        return flush

    def flushed(self, flush: Flush) -> None:
        """Take in that a flush succeeded."""
        self._release(flush)
        self._flushed_ms = self._clock.now_ms()
        if flush.cuts != self._cuts:
            return
        self.recovery_point = max(self.recovery_point, flush.end_offset)
        for offset in flush.snapshots:
            self._pending_snapshots.pop(offset, None)
        if flush.epochs is not None and flush.epochs == self.leader_epochs.entries:
            self.leader_epochs.unstored = False

    def flush_failed(self, flush: Flush, error: OSError) -> LogWriteFailed:
        """Take in that a flush failed: the kernel may have thrown the pages away, so the log takes no more writes."""
        self._release(flush)
        self._failed = True
        return LogWriteFailed(f"flushing {self.directory}", error, self.directory, cut_back=False)

    def _release(self, flush: Flush) -> None:
        self.flushes_under_way -= 1
        for segment in flush.segments:
            segment.release()

    def flush(self, *, durable: bool = True) -> None:
        """Make everything that is written durable; with `durable` false the caller does that part. Blocks.

        Raises:
            LogWriteFailed: nothing may be believed; take the directory offline.
        """
        while flush := self.prepare_flush():
            try:
                flush.run(durable=durable)
            except OSError as error:
                raise self.flush_failed(flush, error) from error
            self.flushed(flush)
