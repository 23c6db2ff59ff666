"""A leader that may have lost data comes back in line with the tier before it serves (R2, R3).

It was elected from outside of the in-sync replicas, had an unclean shutdown, or has an empty disk. A tiered record
never changes and never goes back, so the tier's lineage wins over its own up to the tiered end.
"""

from __future__ import annotations

from dataclasses import dataclass

from appliance.log.partition_log import PartitionLog
from appliance.log.producer_snapshot import snapshot_from_bytes
from appliance.records.batch import parse_header
from appliance.records.builder import build_gap
from appliance.records.control import build_marker
from appliance.tiering.layout import DecidedTransaction, EpochEntry, SegmentTail


@dataclass(frozen=True, slots=True)
class TierEnd:
    """The end of what a claimed manifest lists."""

    start_offset: int
    end_offset: int
    tail: SegmentTail | None
    """Of the last object; None when the manifest lists none."""

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        return self.tail.epochs if self.tail is not None else ()

    @property
    def decided(self) -> tuple[DecidedTransaction, ...]:
        return self.tail.decided if self.tail is not None else ()


def keeps_log(log: PartitionLog, tier: TierEnd) -> bool:
    """R2: whether the log reaches the tiered end on the tier's own lineage."""
    if log.log_end_offset < tier.end_offset:
        return False
    if tier.tail is None or log.local_log_start_offset >= tier.end_offset:
        return log.local_log_start_offset <= max(tier.end_offset, log.log_start_offset)
    last = tier.tail.footer.end - 1
    return log.leader_epochs.epoch_for(last) == tier.tail.epoch_of(last)


def bring_in_line(log: PartitionLog, tier: TierEnd, leader_epoch: int, now_ms: int, gap: int = 0) -> bool:
    """R2 and R3: keep the log or begin anew at the tiered end; then append the markers that are missing.

    `gap`: so many offsets are left out after that, because the log was lost and readers may have seen what they meant.
    Returns whether the log was kept. Raises: OSError, LogWriteFailed, CorruptSnapshot.
    """
    kept = keeps_log(log, tier)
    if not kept:
        log.truncate_fully_and_start_at(tier.end_offset, tier.start_offset)
        log.leader_epochs.clear()
        for epoch, start in tier.epochs:
            log.leader_epochs.assign(epoch, start)
        log.leader_epochs.assign(leader_epoch, tier.end_offset)
        if tier.tail is not None and tier.tail.producers:
            log.producer_state.load(snapshot_from_bytes(tier.tail.producers))
    open_since = dict(log.producer_state.ongoing_transactions)
    for transaction in tier.decided:
        if open_since.get(transaction.producer_id) == transaction.first_offset:
            _append_marker(log, transaction, leader_epoch, now_ms)
    if gap:
        _append(log, build_gap(gap, now_ms), leader_epoch, now_ms)
    return kept


def _append_marker(log: PartitionLog, transaction: DecidedTransaction, leader_epoch: int, now_ms: int) -> None:
    batch = build_marker(
        transaction.outcome,
        transaction.coordinator_epoch,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        now_ms=now_ms,
    )
    _append(log, batch, leader_epoch, now_ms)


def _append(log: PartitionLog, batch: bytes, leader_epoch: int, now_ms: int) -> None:
    view = memoryview(bytearray(batch))
    log.stage(view, parse_header(view), leader_epoch, now_ms)
    log.write_staged()
