"""What producers have appended, found again at a start or after a cut: from their newest snapshot and the batches."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from appliance.base.disk import Disk
from appliance.log.checkpoints import read_file
from appliance.log.producer_snapshot import CorruptSnapshot, snapshot_from_bytes
from appliance.log.producer_state import REMEMBERED_BATCHES, ProducerState
from appliance.log.recovery import RecoveredLog, offset_in_name
from appliance.log.segment import Segment, file_stem
from appliance.records.batch import BatchHeader
from appliance.records.control import read_marker
from appliance.records.errors import CorruptBatch

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOTS_AT_START_MAX = 32
"""Of so many closed segments whose snapshot a crash has lost it is taken again, the newest ones: for the tier, and for
where retention lets the log begin."""


def recover_producers(
    directory: Path, log: RecoveredLog, state: ProducerState, now_ms: int, names: Iterable[str] | None = None
) -> None:
    """Bring the producers' state to the end of the log: from the newest usable snapshot, then from the batches.

    Also finds again the aborted transactions whose markers were checked, and removes snapshots beyond the end. `names`:
    of what is in the folder.
    """
    # After a cut it knows what is gone.
    state.clear()
    disk = log.segments[-1].disk
    start = log.segments[0].base_offset
    limit = log.end_offset if log.checked_from >= log.end_offset else log.checked_from
    found = -1
    bases = {segment.base_offset for segment in log.segments}
    for offset in sorted(snapshot_offsets(disk, directory, names), reverse=True):
        path = directory / f"{file_stem(offset)}{SNAPSHOT_SUFFIX}"
        usable = start <= offset <= log.end_offset
        if usable and offset <= limit and found < 0:
            try:
                state.load(snapshot_from_bytes(read_file(disk, path) or b""))
                found = offset
            except CorruptSnapshot as error:
                logger.warning("%s: %s; an older one takes its place", path, error)
                usable = False
        # Beyond the end, before a gap that deleted segments left, or from an earlier clean end: of no use.
        if not usable or (offset not in bases and offset != found):
            disk.unlink(path)
    found = max(found, start)
    checked_ends = [
        segment.next_offset
        for segment in log.segments
        if not segment.is_active and segment.next_offset > log.checked_from and log.checked_from < log.end_offset
    ][-SNAPSHOTS_AT_START_MAX:]
    # With one segment and no transactions the last batches of each producer say all, and the walk that checked them has
    # kept those.
    replays_all = log.has_transactions or bool(checked_ends and log.producers)
    replay_end = log.end_offset if replays_all else min(log.checked_from, log.end_offset)
    for segment in log.segments:
        if segment.base_offset >= replay_end and not segment.is_active:
            if len(segment.aborted) != segment.stored_aborted:
                segment.has_unstored_indexes = True
        elif segment.next_offset > found and replay_end > found:
            _replay_producers(segment, found, replay_end, log.checked_from, state)
        if segment.next_offset in checked_ends:
            _they_were_active(state, now_ms)
            log.snapshots[segment.next_offset] = state.copy()
    if not replays_all:
        for headers in log.producers.values():
            for fields in headers[-REMEMBERED_BATCHES:]:
                header = BatchHeader(*fields)
                if header.base_offset >= found:
                    state.update(header, header.base_offset, header.max_timestamp)
    _they_were_active(state, now_ms)


def _they_were_active(state: ProducerState, now_ms: int) -> None:
    """Its records do not say when a producer was there last: they may be old ones, or have no time at all."""
    state.were_active({producer_id for producer_id, _ in state.undo}, now_ms)
    state.undo.clear()


def snapshot_offsets(disk: Disk, directory: Path, names: Iterable[str] | None = None) -> list[int]:
    """The offsets of the producer snapshots in a folder; `names`, of what is in it, if they are known."""
    found = disk.listdir(directory) if names is None else names
    offsets = [offset_in_name(name) for name in found if name.endswith(SNAPSHOT_SUFFIX)]
    return [offset for offset in offsets if offset is not None]


def _replay_producers(segment: Segment, start: int, end: int, checked_from: int, state: ProducerState) -> None:
    try:
        position = segment.position_of(start) if start > segment.base_offset else 0
        for at, header in segment.headers(position):
            if header.base_offset >= end:
                break
            if header.producer_id < 0 or header.base_offset < start:
                continue
            if not header.is_control:
                state.update(header, header.base_offset, header.max_timestamp)
                continue
            marker = read_marker(segment.disk.pread(segment.open(), header.size_in_bytes, at))
            if marker is not None:
                aborted = state.end_transaction(header, marker, header.base_offset, header.max_timestamp)
                if aborted is not None and header.base_offset >= checked_from:
                    segment.aborted.append(aborted)
        if not segment.is_active and len(segment.aborted) != segment.stored_aborted:
            segment.has_unstored_indexes = True
    except CorruptBatch as error:
        # What the damage hides could make every later batch of a producer look out of order: forget, and take any.
        logger.error("%s: producers are forgotten: %s", segment.path, error)
        state.forget_idle()
