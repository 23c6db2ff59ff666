"""What the leader's tiering machine hears and what it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.tiering.manifest import Item, Manifest, PageItem, SegmentItem
from appliance.tiering.names import ObjectName


class ClosedSegment(Protocol):
    """A segment of the local log that is not written to any more."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int:
        """The end of its offsets, exclusive."""

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The partition's log and its settings, as the leader's process sees them now."""

    wall_ms: int
    """Wall-clock time: for retention and for what is written into the manifest, never for safety."""
    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    closed: Sequence[ClosedSegment]
    active_base_offset: int
    active_bytes: int
    active_first_append_ms: int | None
    """When the active segment got its first record; None while it is empty."""
    retention_ms: int
    retention_bytes: int
    max_lag_ms: int
    local_expired_end: int = 0
    """Up to where retention would empty the local log, if there were no tier."""
    is_tiered: bool = True
    """Whether the topic is tiered at all (`remote.storage.enable`)."""
    copy_enabled: bool = True
    """Whether segments go up: a tiered topic whose copying is not turned off."""
    compacted_to: int = -1
    """Up to where the log is compacted, with every segment in its place; -1 if it is not, or a round is under way."""
    touched_to: int = -1
    """Up to where compaction may ever have changed the log; -1 if it is not compacted."""
    segment_bytes: int = 1 << 30
    """How large segments become, and with them what small neighbours in the tier are merged into."""
    drop_tier: bool = False
    """Tiering was turned off and what is in the tier shall go (`remote.log.delete.on.disable`)."""

    def needs_manifest(self, *, retention_is_due: bool) -> bool:
        """L1: an idle partition, or one that was never tiered, costs no request."""
        if self.drop_tier or self.log_start_offset < self.local_log_start_offset:
            return True
        expired = retention_is_due and self.local_expired_end > self.local_log_start_offset
        return self.is_tiered and (bool(self.closed) or self.log_start_offset > 0 or expired)


# ------------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """GET the manifest. Answer: ManifestRead, ReadFailed."""


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Create (`etag` None) or swap the manifest. Answer: WriteConfirmed, WriteRefused, WriteUndecided."""

    manifest: Manifest
    etag: str | None


@dataclass(frozen=True, slots=True)
class UploadSegment:
    """Create the object `name` from the local segment of its range. Answer: SegmentUploaded or an upload's failure."""

    name: ObjectName
    listed_from: int
    """Where the manifest's item will begin: at or above the object's start."""
    timeout_ms: int
    """Of one attempt, counted from when it is sent; then the attempt is undecided."""
    cleaned: int = -1
    """How far compaction has gone in it; -1 if that does not matter."""
    listed: SegmentItem | None = None
    """What it would replace: if that has the same records, it is enough to list it anew."""


@dataclass(frozen=True, slots=True)
class MergeObjects:
    """Create the object `name` from those of adjoining items. Answer: SegmentUploaded or an upload's failure."""

    name: ObjectName
    items: tuple[SegmentItem, ...]
    timeout_ms: int
    """As that of an upload."""


@dataclass(frozen=True, slots=True)
class UploadPage:
    """Create a page of `items`. Answer: PageUploaded or an upload's failure."""

    name: ObjectName
    items: tuple[Item, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ReadPage:
    """GET a page. Answer: PageRead, ReadFailed."""

    item: PageItem


@dataclass(frozen=True, slots=True)
class DeleteObjects:
    """DELETE each. Answer: ObjectsDeleted, DeleteFailed."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepObjects:
    """LIST the partition's folder and delete what is dead (S2). Answer: Swept, SweepFailed."""

    manifest: Manifest
    epoch: int


@dataclass(frozen=True, slots=True)
class RecoverLog:
    """Bring the log in line with the tier (R2, R3). Answer: LogRecovered, ReadFailed."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class RollSegment:
    """Close the active segment: its oldest record has waited for `tiering.max.lag.ms`. No answer."""


@dataclass(frozen=True, slots=True)
class TieredTo:
    """Confirmed: everything below `offset` is in the tier; local copies may go (D1, U5). No answer."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """Confirmed: the log starts at `offset` (L2, T3). No answer."""

    offset: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """Tell the controller that this leader has recovered (R4). No answer."""


@dataclass(frozen=True, slots=True)
class Halted:
    """The machine is DEPOSED or STOPPED and will do no more. No answer."""

    reason: str
    is_fault: bool


Request = (
    ReadManifest
    | WriteManifest
    | UploadSegment
    | MergeObjects
    | UploadPage
    | ReadPage
    | DeleteObjects
    | SweepObjects
    | RecoverLog
)
"""Effects that are answered by exactly one event; at most one is open."""
Upload = UploadSegment | MergeObjects | UploadPage
"""Requests that create an object under a name of its own."""
Effect = Request | RollSegment | TieredTo | StartAt | Recovered | Halted


# -------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class ManifestRead:
    """None: there is no manifest."""

    manifest: Manifest | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class ReadFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class WriteConfirmed:
    etag: str


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """412 or 404."""


@dataclass(frozen=True, slots=True)
class WriteUndecided:
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentUploaded:
    """The object is in the store under its name, or as `listed`; `item` is what the list shall say of it."""

    item: SegmentItem


@dataclass(frozen=True, slots=True)
class PageUploaded:
    item: PageItem


@dataclass(frozen=True, slots=True)
class UploadUndecided:
    """No usable answer: the same bytes may be sent again under the same name."""

    reason: str


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """Nothing was sent, or it cannot be sent again: the name is given up."""

    reason: str


@dataclass(frozen=True, slots=True)
class UploadConflict:
    """Another body lies under this name. Names are used once, so this is a fault of ours."""

    reason: str


@dataclass(frozen=True, slots=True)
class PageRead:
    item: PageItem
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class ObjectsDeleted:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class Swept:
    deleted: int


@dataclass(frozen=True, slots=True)
class SweepFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class LogRecovered:
    """The log agrees with the tier up to its end."""


Event = (
    ManifestRead
    | ReadFailed
    | WriteConfirmed
    | WriteRefused
    | WriteUndecided
    | SegmentUploaded
    | PageUploaded
    | UploadUndecided
    | UploadFailed
    | UploadConflict
    | PageRead
    | ObjectsDeleted
    | DeleteFailed
    | Swept
    | SweepFailed
    | LogRecovered
)


def failure_of(request: Request, reason: str) -> Event:
    """What the machine hears when a request could not be done at all. Nothing may be known of its outcome."""
    match request:
        case WriteManifest():
            return WriteUndecided(reason)
        case UploadSegment() | MergeObjects() | UploadPage():
            return UploadUndecided(reason)
        case DeleteObjects():
            return DeleteFailed(reason)
        case SweepObjects():
            return SweepFailed(reason)
        case _:
            return ReadFailed(reason)
