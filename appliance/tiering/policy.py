"""The leader's tiering machine for one partition. Pure: facts and answers in, at most one open request out.

    UNSEEDED ──GET──> SEEDED ──first write confirmed──> CLAIMED
                         └── a write without answer: UNDECIDED, sent again unchanged until it is decided
    DEPOSED    the manifest carries a higher leader epoch: another leads
    STOPPED    something is wrong that waiting does not heal; `reason` says what

The rules and their names (L, W, U, T, S) are those of docs/tiering.md. No safety rule reads a clock: times only decide
when something is tried.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from enum import Enum
from typing import assert_never

from appliance.base.errors import invariant
from appliance.base.randomness import Randomness
from appliance.tiering.backoff import Backoff
from appliance.tiering.candidates import next_upload, roll_is_due
from appliance.tiering.compacted import is_beyond, next_replacement, replaced
from appliance.tiering.events import (
    ClosedSegment,
    DeleteFailed,
    DeleteObjects,
    Effect,
    Event,
    Halted,
    LogFacts,
    LogRecovered,
    ManifestRead,
    MergeObjects,
    ObjectsDeleted,
    PageRead,
    PageUploaded,
    ReadFailed,
    ReadManifest,
    ReadPage,
    Recovered,
    RecoverLog,
    Request,
    RollSegment,
    SegmentUploaded,
    StartAt,
    SweepFailed,
    SweepObjects,
    Swept,
    TieredTo,
    Upload,
    UploadConflict,
    UploadFailed,
    UploadPage,
    UploadSegment,
    UploadUndecided,
    WriteConfirmed,
    WriteManifest,
    WriteRefused,
    WriteUndecided,
)
from appliance.tiering.limits import TieringLimits
from appliance.tiering.manifest import (
    COPY_ON,
    COPY_PAUSED,
    Garbage,
    Item,
    Manifest,
    PageItem,
    SegmentItem,
    empty_manifest,
    fold_candidates,
    folded,
    next_version,
)
from appliance.tiering.merge import RETRY_MS, next_merge, object_of
from appliance.tiering.names import PAGE, SEGMENT, ObjectName
from appliance.tiering.quiet import NEVER_MS
from appliance.tiering.retention import REMOVED_MAX, expire

UPLOAD_ATTEMPTS_MAX = 5
"""So often the same bytes are sent under the same name; then the name is given up (U3)."""


class State(Enum):
    UNSEEDED = "unseeded"
    SEEDED = "seeded"
    CLAIMED = "claimed"
    UNDECIDED = "undecided"
    DEPOSED = "deposed"
    STOPPED = "stopped"


class TieringLeader:
    """See the module's text. One object per partition and leader epoch; never used for another epoch."""

    def __init__(
        self,
        topic: str,
        topic_id: uuid.UUID,
        partition: int,
        cleanup_policy: str,
        leader_epoch: int,
        limits: TieringLimits,
        randomness: Randomness,
        *,
        recovering: bool = False,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.recovering = recovering
        self.state = State.UNSEEDED
        self.manifest = empty_manifest(topic, topic_id, partition, cleanup_policy, 0)
        """The newest manifest that is known to be, or to have been, in the store."""
        self.etag: str | None = None
        self._limits = limits
        self._backoff = Backoff(limits, randomness)
        self._claimed = False
        self._open: Request | None = None
        self._again: Request | None = None
        self._pending: WriteManifest | None = None
        self._facts: LogFacts | None = None
        self._waiting = ""
        self._next_retention_ms = -1
        self._next_seq = 0
        self._attempts = 0
        self._pages: dict[str, tuple[Item, ...]] = {}
        self._folded: tuple[PageItem, tuple[Item, ...]] | None = None
        self._deleted: set[str] = set()
        self._sweep_at_ms: int | None = None
        self._may_merge = False
        """Retention has looked at the list since no merge was found."""
        self._merge_from_ms = 0

    @property
    def reason(self) -> str:
        """Why nothing goes on although something waits; empty when nothing waits or all goes well."""
        return self._backoff.reason or self._waiting

    @property
    def tiered_end(self) -> int:
        """Confirmed: all offsets below are in the tier, or below the log's start."""
        return self.manifest.end_offset

    @property
    def is_idle(self) -> bool:
        """Whether no request is open."""
        return self._open is None

    @property
    def retried(self) -> Request | None:
        """What failed and is asked for again, unchanged."""
        return self._again

    @property
    def is_seeded(self) -> bool:
        return self.state in (State.SEEDED, State.CLAIMED, State.UNDECIDED)

    # ------------------------------------------------------------------------------------------------------- time

    def tick(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        """What is to be done now. `now_ms` is the monotonic clock. While a request is open only a roll can come."""
        self._facts = facts
        if self.state in (State.DEPOSED, State.STOPPED):
            return []
        if self._next_retention_ms < 0:
            # As with Kafka's timer: records that come with old times are there for a while before they expire.
            self._next_retention_ms = now_ms + self._limits.retention_interval_ms
        tiered_end = self.tiered_end if self.is_seeded else facts.local_log_start_offset
        is_due = not self.recovering and roll_is_due(facts, tiered_end)
        effects: list[Effect] = [RollSegment()] if is_due else []
        if self._open is not None or now_ms < self._backoff.until_ms:
            return effects
        if self._again is not None:
            request, self._again = self._again, None
            return effects + self._ask(request)
        return effects + (self._recover(facts) if self.recovering else self._decide(facts, now_ms))

    def rests_until_ms(self, now_ms: int) -> int:
        """Until when the last tick's facts, if they stay as they were, ask for nothing; `now_ms` when they may."""
        facts = self._facts
        if self.state in (State.DEPOSED, State.STOPPED):
            return NEVER_MS
        if facts is None or self.recovering or self._open or self._again or self.reason:
            return now_ms
        # What is due by size is found with the next retention, as in Apache Kafka.
        if self.state is State.UNSEEDED:
            return self._next_retention_ms
        if facts.closed and facts.closed[-1].next_offset > self.tiered_end:
            return now_ms
        until_ms = self._next_retention_ms
        if self._claimed and self._sweep_at_ms is not None:
            until_ms = min(until_ms, self._sweep_at_ms)
        waiting = [entry.removed_at_ms for entry in self.manifest.garbage if entry.name not in self._deleted]
        if waiting:
            until_ms = min(until_ms, now_ms + min(waiting) + self._limits.delete_delay_ms - facts.wall_ms)
        return until_ms

    def _recover(self, facts: LogFacts) -> list[Effect]:
        """R1: read and claim; then R2 and R3 are the log's."""
        if self.state is State.UNSEEDED:
            return self._ask(ReadManifest())
        if self.state is State.SEEDED:
            return self._write(next_version(self.manifest, self.leader_epoch))
        return self._ask(RecoverLog(self.manifest))

    def _decide(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        self._waiting = ""
        if self.state is State.UNSEEDED:
            is_due = now_ms >= self._next_retention_ms
            if facts.needs_manifest(retention_is_due=is_due):
                return self._ask(ReadManifest())
            if is_due:
                self._next_retention_ms = now_ms + self._limits.retention_interval_ms
            return []
        if facts.log_end_offset < self.tiered_end:
            return self.stop(f"the log ends at {facts.log_end_offset}, below the tiered end {self.tiered_end}")
        return (
            self._expire(facts, now_ms)
            or self._delete_garbage(facts)
            or self._upload(facts, now_ms)
            or self._rest(now_ms)
        )

    def _expire(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        """T1, T2."""
        if now_ms < self._next_retention_ms and facts.log_start_offset <= self.manifest.start_offset:
            return []
        found = expire(self.manifest, facts, self._pages)
        if found is None:
            self._next_retention_ms = now_ms + self._limits.retention_interval_ms
            self._may_merge = True
            return []
        if isinstance(found, PageItem):
            return self._ask(ReadPage(found))
        return self._write(
            next_version(
                self.manifest,
                self.leader_epoch,
                start_offset=found.start_offset,
                end_offset=found.end_offset,
                items=found.items,
                garbage=found.garbage,
            )
        )

    def _delete_garbage(self, facts: LogFacts) -> list[Effect]:
        """T4, which needs no claim: a name never comes back out of the garbage.

        Deleted names are forgotten with the next write, or by a write of their own when there are many.
        """
        due = facts.wall_ms - self._limits.delete_delay_ms
        names = [g.name for g in self.manifest.garbage if g.removed_at_ms <= due and g.name not in self._deleted]
        if names:
            return self._ask(DeleteObjects(tuple(names[:REMOVED_MAX])))
        if len(self._deleted) >= REMOVED_MAX:
            return self._write(next_version(self.manifest, self.leader_epoch))
        return []

    def _upload(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        """U1, and pages when the list is long."""
        copy = COPY_ON if facts.copy_enabled else COPY_PAUSED
        if self.manifest.copy != copy and self.manifest.version > 0:
            return self._write(next_version(self.manifest, self.leader_epoch, copy=copy))
        if not facts.copy_enabled:
            self._waiting = "copying is turned off" if facts.is_tiered else ""
            return []
        first_local = facts.closed[0].base_offset if facts.closed else facts.active_base_offset
        if first_local > self.tiered_end:
            return self.stop(f"hole: the tier ends at {self.tiered_end}, the local log begins at {first_local}")
        if is_beyond(self.manifest, facts):
            self._waiting = (
                f"compacted to {facts.touched_to} while it was not tiered, above the tiered end {self.tiered_end}: "
                "nothing more is copied"
            )
            return []
        segment = next_upload(facts, self.tiered_end)
        if isinstance(segment, str):
            self._waiting = segment
        if segment is None or isinstance(segment, str):
            return self._replace(facts) or self._merge(facts, now_ms)
        candidates = fold_candidates(self.manifest.items) if self._folded is None else None
        if candidates is not None:
            moved = self.manifest.items[slice(*candidates)]
            name = self._new_name(PAGE, moved[0].start, moved[-1].end)
            return self._ask(UploadPage(name, moved, self._limits.upload_timeout_ms))
        return self._upload_segment(segment, self.tiered_end)

    def _upload_segment(
        self, segment: ClosedSegment, listed_from: int, cleaned: int = -1, listed: SegmentItem | None = None
    ) -> list[Effect]:
        name = self._new_name(SEGMENT, segment.base_offset, segment.next_offset)
        return self._ask(UploadSegment(name, listed_from, self._limits.time_for(segment.size_bytes), cleaned, listed))

    def _replace(self, facts: LogFacts) -> list[Effect]:
        """C1: the oldest segment that the log has compacted further than the tier."""
        found = next_replacement(self.manifest, facts, self._pages)
        if found is None:
            return []
        if isinstance(found, PageItem):
            return self._ask(ReadPage(found))
        return self._upload_segment(found.segment, found.start, facts.compacted_to, found.listed)

    def _merge(self, facts: LogFacts, now_ms: int) -> list[Effect]:
        """M1: small neighbours become one object, when retention has just looked at them and nothing else waits."""
        if not self._may_merge or now_ms < self._merge_from_ms:
            return []
        run = next_merge(self.manifest, facts, self._limits)
        if not run:
            self._may_merge = False
            return []
        name = self._new_name(SEGMENT, object_of(run[0]).start, run[-1].end)
        # Down and up again.
        return self._ask(MergeObjects(name, run, self._limits.time_for(2 * sum(item.size for item in run))))

    def _rest(self, now_ms: int) -> list[Effect]:
        """S1 to S3."""
        if not self._claimed or self._sweep_at_ms is None or now_ms < self._sweep_at_ms:
            return []
        return self._ask(SweepObjects(self.manifest, self.leader_epoch))

    # ----------------------------------------------------------------------------------------------------- answers

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The answer to the open request. What is to be done next comes with the next `tick`."""
        if self.state in (State.DEPOSED, State.STOPPED):
            return []
        request, self._open = self._open, None
        invariant(request is not None, f"{event} answers nothing")
        match event:
            case ManifestRead(manifest, etag):
                return self._manifest_read(manifest, etag, now_ms)
            case WriteConfirmed(etag):
                return self._confirmed(etag, now_ms)
            case WriteRefused():
                # W3: it may have been our own write whose answer was lost; only a read can tell.
                self.state = State.UNDECIDED
                return self._ask(ReadManifest())
            case WriteUndecided(reason):
                # W4: the same bytes with the same ETag, until it is decided.
                self.state = State.UNDECIDED
                return self._retry(request, f"writing the manifest: {reason}", now_ms)
            case SegmentUploaded(item):
                return self._uploaded(item)
            case PageUploaded(item):
                invariant(isinstance(request, UploadPage), "a page that was not asked for")
                self._folded = (item, request.items) if isinstance(request, UploadPage) else None
                self._backoff.succeeded()
            case UploadUndecided(reason):
                invariant(isinstance(request, Upload), "an upload that was not asked for")
                self._attempts += 1
                if isinstance(request, Upload) and self._attempts < UPLOAD_ATTEMPTS_MAX:
                    return self._retry(request, f"uploading {request.name}: {reason}", now_ms)
                return self._give_up(request, f"upload given up: {reason}", now_ms)
            case UploadFailed(reason):
                return self._give_up(request, f"upload failed: {reason}", now_ms)
            case UploadConflict(reason):
                return self.stop(reason)
            case PageRead(item, items):
                self._backoff.succeeded()
                self._pages[item.name] = items
            case ObjectsDeleted(names):
                self._backoff.succeeded()
                self._deleted.update(names)
            case Swept():
                self._backoff.succeeded()
                self._sweep_at_ms = None
            case ReadFailed(reason):
                return self._retry(request, f"reading: {reason}", now_ms)
            case DeleteFailed(reason) | SweepFailed(reason):
                self._backoff.failed(f"deleting: {reason}", now_ms)
            case LogRecovered():
                self._backoff.succeeded()
                self.recovering = False
                return [Recovered()]
            case _:
                assert_never(event)
        return []

    def _manifest_read(self, manifest: Manifest | None, etag: str | None, now_ms: int) -> list[Effect]:
        if self._pending is not None and manifest == self._pending.manifest:
            return self._confirmed(etag, now_ms)
        if manifest is None:
            return self._manifest_missing()
        if manifest.leader_epoch > self.leader_epoch:
            return self._depose(manifest.leader_epoch)
        if self._claimed or manifest.leader_epoch == self.leader_epoch:
            return self.stop(
                f"manifest version {manifest.version} of leader epoch {manifest.leader_epoch} was written by another "
                f"under leader epoch {self.leader_epoch}"
            )
        # L2, or W3: an older leader was faster. Take its list; what was to be written is dropped.
        dropped, self._pending, self._folded = self._pending, None, None
        if dropped is not None:
            self._sweep_at_ms = now_ms + self._limits.upload_timeout_ms
        self.manifest, self.etag, self.state = manifest, etag, State.SEEDED
        self._backoff.succeeded()
        return [StartAt(manifest.start_offset), TieredTo(manifest.end_offset)]

    def _manifest_missing(self) -> list[Effect]:
        facts = self._facts
        if self._pending is not None or self.manifest.version > 0 or facts is None:
            return self.stop(f"the manifest, version {self.manifest.version}, is not there any more")
        if facts.local_log_start_offset > facts.log_start_offset and not self.recovering:
            return self.stop(
                f"there is no manifest, but offsets {facts.log_start_offset} to {facts.local_log_start_offset} "
                "are not on the local disk"
            )
        self.manifest = empty_manifest(
            self.topic, self.topic_id, self.partition, self.manifest.cleanup_policy, facts.log_start_offset
        )
        self.state = State.SEEDED
        self._backoff.succeeded()
        return [StartAt(self.manifest.start_offset)]

    def _uploaded(self, item: SegmentItem) -> list[Effect]:
        """U4: the item is cut at the tiered end; its object may begin earlier. C2, M2: or it replaces others."""
        self._backoff.succeeded()
        if item.start < self.tiered_end:
            items, removed = replaced(self.manifest.items, item, self._pages)
            wall_ms = self._facts.wall_ms if self._facts is not None else 0
            garbage = self.manifest.garbage + tuple(Garbage(name, wall_ms) for name in removed)
            end = max(self.tiered_end, item.end)
            change = next_version(self.manifest, self.leader_epoch, items=items, garbage=garbage, end_offset=end)
            return self._write(change)
        invariant(item.start == self.tiered_end, f"{item} does not begin at the tiered end {self.tiered_end}")
        items = (*self.manifest.items, item)
        return self._write(next_version(self.manifest, self.leader_epoch, items=items, end_offset=item.end))

    def _confirmed(self, etag: str | None, now_ms: int) -> list[Effect]:
        """W2, U5, T3."""
        written, before = self._pending, self.manifest
        invariant(written is not None and etag is not None, "a write that was not asked for")
        if written is None:
            return []
        self._pending, self._folded = None, None
        self.manifest, self.etag, self.state = written.manifest, etag, State.CLAIMED
        self._deleted &= {entry.name for entry in self.manifest.garbage}
        listed = {item.name for item in self.manifest.items if isinstance(item, PageItem)}
        self._pages = {name: items for name, items in self._pages.items() if name in listed}
        if not self._claimed:
            self._sweep_at_ms = now_ms + self._limits.upload_timeout_ms
        elif self._sweep_at_ms is None:
            self._sweep_at_ms = now_ms + self._limits.sweep_interval_ms
        self._claimed = True
        self._backoff.succeeded()
        effects: list[Effect] = []
        if self.manifest.start_offset > before.start_offset:
            effects.append(StartAt(self.manifest.start_offset))
        if self.manifest.end_offset > before.end_offset:
            effects.append(TieredTo(self.manifest.end_offset))
        return effects

    # ----------------------------------------------------------------------------------------------------- helpers

    def _ask(self, request: Request) -> list[Effect]:
        self._open = request
        return [request]

    def _write(self, manifest: Manifest) -> list[Effect]:
        """W1. Deleted names leave the garbage, and a page takes its place, with whatever is written next."""
        garbage = tuple(entry for entry in manifest.garbage if entry.name not in self._deleted)
        items = folded(manifest.items, *self._folded) if self._folded is not None else None
        if self._folded is not None and items is None:
            self._sweep_at_ms = 0
        self._pending = WriteManifest(replace(manifest, garbage=garbage, items=items or manifest.items), self.etag)
        return self._ask(self._pending)

    def _new_name(self, kind: str, start: int, end: int) -> ObjectName:
        name = ObjectName(kind, start, end, self.leader_epoch, self._next_seq)
        self._next_seq += 1
        self._attempts = 0
        return name

    def _retry(self, request: Request | None, reason: str, now_ms: int) -> list[Effect]:
        self._again = request
        self._backoff.failed(reason, now_ms)
        return []

    def _give_up(self, request: Request | None, reason: str, now_ms: int) -> list[Effect]:
        """U3: the name is never used again; what may still arrive under it is swept."""
        if isinstance(request, MergeObjects):
            self._merge_from_ms = now_ms + RETRY_MS
        self._sweep_at_ms = now_ms + self._limits.upload_timeout_ms
        self._backoff.failed(reason, now_ms)
        return []

    def _depose(self, leader_epoch: int) -> list[Effect]:
        self.state = State.DEPOSED
        reason = f"the manifest belongs to leader epoch {leader_epoch}, this leader has {self.leader_epoch}"
        self._backoff.ended(reason)
        return [Halted(reason, is_fault=False)]

    def stop(self, reason: str) -> list[Effect]:
        """Something is wrong: do nothing more."""
        self.state = State.STOPPED
        self._backoff.ended(reason)
        return [Halted(reason, is_fault=True)]
