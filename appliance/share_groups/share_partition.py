"""One partition of one share group, at the partition's leader: which record is whose, and which is done with. Pure.

```
              acquire (count + 1)                accept
 AVAILABLE ─────────────────────> ACQUIRED ───────────────────> ACKNOWLEDGED
     ^                             │    │        reject, gap
     └─────────────────────────────┘    └─────────────────────> ARCHIVED
       release, lock over, member gone      the same, when it was handed out as often as it may be
```

What a member says is an operation: it counts when the share coordinator has it, and its sender hears of it then. Until
that its records belong to nobody else. What we do by ourselves counts at once and is written with the next operation
or alone; writes go out one at a time, in order, each with all that has come together meanwhile.

The records from the start offset to the end are a list of runs without holes; whatever lies at the front and is done
with leaves it, and the start offset moves.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from appliance.base.errors import ErrorCode, invariant
from appliance.share_groups.config import PartitionLimits
from appliance.share_groups.runs import Acquired, Operation, ReadBatch, Run, Said, by_kind, joined, told_in
from appliance.share_groups.state_stored import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, Batch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""What a member may say of a record."""
_TERMINAL = (ACKNOWLEDGED, ARCHIVED)
_MAX_COUNT = 2**15 - 1
"""Delivery counts travel as 16 bits."""


@dataclass(frozen=True, slots=True)
class StateWrite:
    """What the share coordinator is to know."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[Batch, ...]


@dataclass(slots=True)
class _Write:
    operations: list[Operation]
    unsaved: list[tuple[int, int]]
    state: StateWrite


@dataclass(slots=True)
class SharePartition:
    """See above. All times are on the monotonic clock."""

    limits: PartitionLimits
    start_offset: int
    runs: list[Run] = field(default_factory=list)
    saved_start: int = -1
    """The start offset that the share coordinator has; -1: it does not know yet where the group begins."""
    _queued: list[Operation] = field(default_factory=list)
    _unsaved: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that we have changed by ourselves since they were written."""
    _writing: _Write | None = None
    _is_unsure: bool = False
    """The last write failed, and may have come through all the same: the next one says everything."""

    @classmethod
    def loaded(cls, limits: PartitionLimits, start_offset: int, batches: Iterable[Batch]) -> SharePartition:
        """From what the share coordinator has; what it does not name has never been handed out."""
        partition = cls(limits, start_offset, saved_start=start_offset)
        runs = partition.runs
        for first, last, state, count in sorted(batches):
            first = max(first, partition.end_offset + 1)
            if last < first:
                continue
            if first > partition.end_offset + 1:
                runs.append(Run(partition.end_offset + 1, first - 1))
            runs.append(Run(first, last, state if state in _TERMINAL else AVAILABLE, count))
        partition._advance()
        return partition

    @property
    def end_offset(self) -> int:
        """The last record that was ever looked at; one before the start if there is none."""
        return self.runs[-1].last if self.runs else self.start_offset - 1

    @property
    def in_flight(self) -> int:
        """Records from the start to the end."""
        return self.end_offset - self.start_offset + 1

    @property
    def next_fetch_offset(self) -> int:
        """Where the log has to be read to hand something out."""
        for run in self.runs:
            if run.state == AVAILABLE:
                return run.first
        return self.end_offset + 1

    @property
    def can_acquire(self) -> bool:
        """Whether there is something to hand out, or room for more."""
        return self.in_flight < self.limits.max_record_locks or any(run.state == AVAILABLE for run in self.runs)

    @property
    def is_idle(self) -> bool:
        """The share coordinator knows everything, and nobody has anything."""
        is_saved = self._writing is None and not self._queued and not self._unsaved
        return (
            is_saved and self.start_offset == self.saved_start and not any(run.state == ACQUIRED for run in self.runs)
        )

    # Handing out

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        read: Sequence[ReadBatch],
        now_ms: int,
        *,
        max_records: int,
        batch_size: int = 0,
        exactly: bool = False,
    ) -> list[Acquired]:
        """Give records that were read from `fetch_offset` on to a member.

        Args:
            max_records: with the batch in which they are reached it is enough, or to the record with `exactly`.
            batch_size: how many records are best told of at once.
        """
        due_ms = now_ms + self.limits.lock_duration_ms
        taken: list[Acquired] = []
        left = max_records
        expected = max(fetch_offset, self.start_offset)
        for batch in read:
            first, last = max(batch.first_offset, self.start_offset), batch.last_offset
            if last < first:
                continue
            if first > expected:
                # The log has nothing there any more.
                self._archive(expected, first - 1)
            expected = max(expected, last + 1)
            if not batch.is_delivered:
                self._archive(first, last)
                continue
            if left <= 0 or not self._grow(first, last, left, exactly):
                break
            got = self._take(first, min(last, self.end_offset), member_id, due_ms, left if exactly else -1)
            left -= sum(each.last_offset - each.first_offset + 1 for each in got)
            taken += got
            if self.end_offset < last:
                # Only a part of it was taken: what lies behind has to wait.
                break
        self._advance()
        return told_in(taken, batch_size)

    def _grow(self, first: int, last: int, wanted: int, exactly: bool) -> bool:
        """Take new records of a batch in, if there is room; false: there is none, and none of its records are old."""
        end = self.end_offset
        if last <= end:
            return True
        # Not all that is done with at the front may have left yet.
        room = self.limits.max_record_locks - self.in_flight
        if room <= 0:
            return first <= end
        new_first = end + 1
        if first > new_first:
            self.runs.append(Run(new_first, first - 1, ARCHIVED))
            self._unsaved.append((new_first, first - 1))
            new_first = first
        self.runs.append(Run(new_first, min(last, new_first + wanted - 1) if exactly else last))
        return True

    def _take(self, first: int, last: int, member_id: str, due_ms: int, limit: int) -> list[Acquired]:
        taken: list[Acquired] = []
        for run in self._between(first, last):
            if run.state != AVAILABLE:
                continue
            if limit == 0:
                break
            if 0 < limit < len(run):
                self._boundary(run.first + limit)
            run.state = run.goal = ACQUIRED
            run.count = min(run.count + 1, _MAX_COUNT)
            run.member_id, run.due_ms = member_id, due_ms
            taken.append(Acquired(run.first, run.last, run.count))
            limit -= len(run) if limit > 0 else 0
        return taken

    def _archive(self, first: int, last: int) -> None:
        """There is nothing to hand out here."""
        end = self.end_offset
        if last > end and max(first, end + 1) <= last:
            self.runs.append(Run(end + 1, last, ARCHIVED))
            self._unsaved.append((end + 1, last))
        for run in self._between(first, min(last, end)):
            if run.state == AVAILABLE:
                run.state = run.goal = ARCHIVED
                self._unsaved.append((run.first, run.last))

    # What members say

    def acknowledge(self, member_id: str, said: Sequence[Said], now_ms: int) -> Operation | ErrorCode:
        """Take over what a member says, all of it or nothing."""
        rows: list[tuple[int, int, int]] = []
        before, overlap = -1, False
        for each in said:
            first, last, types = each
            if first < 0 or first > last or first < before or len(types) not in (1, last - first + 1):
                return ErrorCode.INVALID_REQUEST
            if any(not GAP <= kind <= RENEW for kind in types):
                return ErrorCode.INVALID_REQUEST
            if RENEW in types and not self.limits.renewing:
                return ErrorCode.INVALID_RECORD_STATE
            overlap |= first == before
            before = last
            if last < self.start_offset:
                continue
            if last > self.end_offset:
                return ErrorCode.INVALID_REQUEST
            rows += by_kind(each, self.start_offset)
        if overlap:
            # As in Kafka: of the last offset of a batch the next one comes too late.
            return ErrorCode.INVALID_RECORD_STATE
        for first, last, _ in rows:
            for run in self._overlapping(first, last):
                if run.state != ACQUIRED or run.member_id != member_id or run.operation is not None:
                    return ErrorCode.INVALID_RECORD_STATE
        operation = Operation()
        for first, last, kind in rows:
            for run in self._between(first, last):
                if kind == RENEW:
                    run.due_ms = now_ms + self.limits.lock_duration_ms
                else:
                    run.operation = operation
                    run.goal = self._after(kind, run.count)
        self._join()
        self._queued.append(operation)
        return operation

    def _after(self, kind: int, count: int) -> int:
        if kind == ACCEPT:
            return ACKNOWLEDGED
        if kind == RELEASE and count < self.limits.delivery_count_limit:
            return AVAILABLE
        return ARCHIVED

    def release(self, member_id: str) -> bool:
        """The member is gone: what it has is for others. Returns whether it had anything."""
        return self._free(lambda run: run.member_id == member_id)

    def locks_over(self, now_ms: int) -> bool:
        """Take back what members have had for too long. Returns whether there was anything."""
        return self._free(lambda run: run.due_ms <= now_ms)

    def _free(self, is_meant: Callable[[Run], bool]) -> bool:
        found = False
        for run in self.runs:
            # What is on its way to the share coordinator may still be done with; if not, its lock ends later.
            if run.state == ACQUIRED and run.operation is None and is_meant(run):
                run.state = run.goal = self._after(RELEASE, run.count)
                run.member_id, run.due_ms = "", 0
                self._unsaved.append((run.first, run.last))
                found = True
        if found:
            self._advance()
        return found

    @property
    def next_due_ms(self) -> int | None:
        """When the next lock is over."""
        return min((run.due_ms for run in self.runs if run.state == ACQUIRED and run.operation is None), default=None)

    # The log

    def log_begins_at(self, offset: int) -> bool:
        """Whether records that the log has lost had to be given up."""
        if offset <= self.start_offset:
            return False
        if offset > self.end_offset:
            self.runs.clear()
        else:
            self._boundary(offset)
            self.runs = [run for run in self.runs if run.first >= offset]
        self.start_offset = offset
        self._advance()
        return True

    def log_ends_at(self, offset: int) -> None:
        """A new leader has fewer records than the one before had handed out."""
        if self.end_offset < offset:
            return
        if offset <= self.start_offset:
            self.runs.clear()
            self.start_offset = offset
        else:
            self._boundary(offset)
            self.runs = [run for run in self.runs if run.first < offset]

    # The share coordinator

    def take_write(self) -> StateWrite | None:
        """The next write, once the last one has its outcome; None: there is nothing to be written."""
        is_needed = self._queued or self._unsaved or self.start_offset != self.saved_start
        if self._writing is not None or not is_needed:
            return None
        operations, self._queued = self._queued, []
        unsaved, self._unsaved = self._unsaved, []
        self._writing = _Write(operations, unsaved, self._state(operations, unsaved))
        return self._writing.state

    def _state(self, operations: list[Operation], unsaved: list[tuple[int, int]]) -> StateWrite:
        ours = {id(each) for each in operations}
        rows: list[Batch] = []
        start_offset, is_front, complete = self.start_offset, True, 0
        for run in self.runs:
            is_meant = run.operation is not None and id(run.operation) in ours
            state = run.goal if is_meant else run.state
            if is_front and state in _TERMINAL:
                start_offset = run.last + 1
                continue
            is_front = False
            if state in _TERMINAL:
                complete += len(run)
            if is_meant:
                rows.append(Batch(run.first, run.last, state, run.count))
        everything = [(start_offset, self.end_offset)] if self._is_unsure else unsaved
        for first, last in everything:
            for run in self._overlapping(max(first, start_offset), last):
                if run.operation is None or id(run.operation) not in ours:
                    state = run.state if run.state in _TERMINAL else AVAILABLE
                    # What somebody has just now has not come back yet.
                    count = run.count - (run.state == ACQUIRED)
                    rows.append(Batch(max(run.first, first, start_offset), min(run.last, last), state, count))
        return StateWrite(start_offset, complete, joined(rows))

    def written(self, error: ErrorCode) -> list[tuple[Operation, ErrorCode]]:
        """The outcome of the last write; returns whom to tell what."""
        write = self._writing
        invariant(write is not None, "an outcome of a write that was not made")
        assert write is not None
        self._writing = None
        ours = {id(each) for each in write.operations}
        for run in self.runs:
            if run.operation is None or id(run.operation) not in ours:
                continue
            run.operation = None
            if error is ErrorCode.NONE:
                run.state = run.goal
                run.member_id, run.due_ms = "", 0
            else:
                run.goal = run.state
        if error is ErrorCode.NONE:
            self.saved_start = write.state.start_offset
            self._is_unsure = False
        else:
            self._is_unsure = True
            self._unsaved = [*write.unsaved, *self._unsaved]
        self._advance()
        return [(each, error) for each in write.operations]

    def end(self, error: ErrorCode) -> list[tuple[Operation, ErrorCode]]:
        """Another leader, or another epoch of the group's state: nothing of this counts any more."""
        operations = [*(self._writing.operations if self._writing is not None else ()), *self._queued]
        self._writing, self._queued, self._unsaved, self.runs = None, [], [], []
        return [(each, error) for each in operations]

    # Runs

    def _advance(self) -> None:
        """Let what is done with at the front go, and join neighbours that are alike."""
        done = 0
        for run in self.runs:
            if run.state not in _TERMINAL:
                break
            self.start_offset = run.last + 1
            done += 1
        if done:
            del self.runs[:done]
            if self._unsaved:
                self._unsaved = [each for each in self._unsaved if each[1] >= self.start_offset]
        self._join()

    def _join(self) -> None:
        alike: list[Run] = []
        for run in self.runs:
            if alike and alike[-1].is_like(run):
                alike[-1].last = run.last
            else:
                alike.append(run)
        self.runs = alike

    def _index(self, offset: int) -> int:
        """The run that holds an offset."""
        return bisect_right(self.runs, offset, key=_first) - 1

    def _boundary(self, offset: int) -> None:
        """Let a run begin there."""
        index = self._index(offset)
        if index >= 0 and self.runs[index].first < offset <= self.runs[index].last:
            self.runs.insert(index + 1, self.runs[index].cut_at(offset))

    def _overlapping(self, first: int, last: int) -> list[Run]:
        """The runs that hold any of these offsets, as they are."""
        if last < first:
            return []
        return [run for run in self.runs[max(0, self._index(first)) : self._index(last) + 1] if run.last >= first]

    def _between(self, first: int, last: int) -> list[Run]:
        """Runs that hold exactly these offsets."""
        first = max(first, self.start_offset)
        if last < first or not self.runs:
            return []
        self._boundary(first)
        self._boundary(last + 1)
        return self._overlapping(first, last)


def _first(run: Run) -> int:
    return run.first
