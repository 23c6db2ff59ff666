"""What tiering takes out of a partition's log, on the thread that owns the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from appliance.log.producer_snapshot import snapshot_from_bytes
from appliance.log.segment import Segment
from appliance.tiering.events import LogFacts, UploadSegment
from appliance.tiering.layout import EpochEntry
from appliance.tiering.scan import OpenTransaction
from appliance.tiering.uploader import LogFile, NextSegment, SegmentSource

if TYPE_CHECKING:
    from appliance.tiering.manager import TierablePartition


def log_facts(hosted: TierablePartition, wall_ms: int, wanted_start: int = 0) -> LogFacts:
    """What the machine is told of the log and of the topic's configs. Raises: OSError.

    `wanted_start`: where the log shall begin once the manifest says so (DeleteRecords).
    """
    log, config = hosted.log, hosted.config
    active = log.active_segment
    tiered = config.remote_storage_enable
    last_stable_offset = hosted.last_stable_offset
    by_retention = config.is_deleted_by_retention
    return LogFacts(
        wall_ms=wall_ms,
        log_start_offset=max(log.log_start_offset, wanted_start),
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=last_stable_offset,
        closed=log.closed_segments(),
        active_base_offset=active.base_offset,
        active_bytes=active.size_bytes,
        active_first_append_ms=active.first_append_ms if active.size_bytes and active.first_append_ms >= 0 else None,
        retention_ms=config.retention_ms if by_retention else -1,
        retention_bytes=config.retention_bytes if by_retention else -1,
        max_lag_ms=config.tiering_max_lag_ms,
        local_expired_end=log.retention_deletable(wall_ms, last_stable_offset) if tiered else 0,
        is_tiered=tiered,
        compacted_to=log.compacted_to if config.is_compacted else -1,
        touched_to=log.cleaned_offset if config.is_compacted else -1,
        copy_enabled=tiered and not config.remote_log_copy_disable,
        segment_bytes=config.segment_bytes,
        drop_tier=not tiered and config.remote_log_delete_on_disable,
    )


def segment_source(
    hosted: TierablePartition, request: UploadSegment, tiered_end: int, created_ms: int
) -> SegmentSource:
    """Everything the upload of a closed segment needs.

    Raises:
        ValueError: the segment is not there any more, or not as it was. OSError: a snapshot cannot be read.
    """
    log, name, is_compacted = hosted.log, request.name, hosted.config.is_compacted
    if request.cleaned >= 0 and log.compacted_to != request.cleaned:
        raise ValueError(f"the log is being compacted beyond {request.cleaned}")
    place = next((n for n, s in enumerate(log.segments) if s.base_offset == name.start), None)
    if place is None or log.segments[place].next_offset != name.end:
        raise ValueError(f"no local segment [{name.start}, {name.end}) any more")
    segment = log.segments[place]
    producers = log.producer_snapshot_at(name.end)
    next_segment = None
    if not is_compacted and place + 2 < len(log.segments) and log.segments[place + 1].base_offset == name.end:
        file = _file(log.segments[place + 1], is_compacted)
        next_segment = NextSegment(file, name.end, _open_transactions(producers))
    return SegmentSource(
        topic=hosted.topic,
        topic_id=hosted.topic_id,
        partition=hosted.partition,
        file=_file(segment, is_compacted),
        following=tuple(_file(later, is_compacted) for later in log.segments[place + 1 :]),
        open_transactions=_open_transactions(log.producer_snapshot_at(name.start)),
        producers=producers or b"",
        epochs=tuple(EpochEntry(epoch, start) for epoch, start in log.leader_epochs.entries if start < name.end),
        index_interval_bytes=segment.index_interval_bytes,
        created_ms=created_ms,
        is_compacted=is_compacted,
        open_at_end=_open_transactions(producers) if is_compacted and name.end >= tiered_end else None,
        next_segment=next_segment,
    )


def waiting_to_be_tiered(hosted: TierablePartition, tiered_end: int) -> tuple[int, int]:
    """How many closed segments, and how many bytes in them, are not in the tier."""
    if not hosted.config.remote_storage_enable:
        return 0, 0
    segments: Sequence[Segment] = hosted.log.segments[:-1]
    waiting = [segment.size_bytes for segment in segments if segment.next_offset > tiered_end]
    return len(waiting), sum(waiting)


def _file(segment: Segment, is_compacted: bool) -> LogFile:
    return LogFile(segment.path, segment.size_bytes, segment.path.stat().st_ino if is_compacted else 0)


def _open_transactions(snapshot: bytes | None) -> dict[int, OpenTransaction]:
    """Those open where the snapshot was taken, by producer id.

    Without a snapshot there are none as far as anyone knows. That costs nothing: a transaction with records in the
    segment is found by the scan, and one without records in it needs no entry for the segment's readers.
    """
    if not snapshot:
        return {}
    return {
        entry.producer_id: OpenTransaction(entry.transaction_first_offset, entry.epoch)
        for entry in snapshot_from_bytes(snapshot)
        if entry.transaction_first_offset >= 0
    }
