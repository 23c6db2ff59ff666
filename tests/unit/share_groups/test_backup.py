"""What the backup of `__share_group_state` has is what its log says."""

from __future__ import annotations

import uuid
from dataclasses import replace

from appliance.coordinator.backup import BackupHead, encode_backup, parse_backup
from appliance.coordinator.loader import load, replaying
from appliance.records.builder import build_batch
from appliance.share_groups.backup import NOBODY, LastStates
from appliance.share_groups.state_records import decode_record, encode_record
from appliance.share_groups.state_stored import (
    ACKNOWLEDGED,
    Batch,
    PartitionState,
    SnapshotRecord,
    StateKey,
    StateRecord,
    StoredStates,
    UpdateRecord,
)

KEY, GONE = StateKey("g", uuid.UUID(int=1), 0), StateKey("h", uuid.UUID(int=1), 3)
STATE = PartitionState(2, 10, leader_epoch=5, snapshot_epoch=1, delivery_complete_count=0)


def log_of(*records: StateRecord) -> list[bytes]:
    return [build_batch([(0, *encode_record(record), ())]) for record in records]


def test_updates_are_laid_over_their_snapshot_and_what_has_ended_is_not_in_it() -> None:
    known = LastStates()
    known.read(log_of(SnapshotRecord(KEY, STATE), SnapshotRecord(GONE, STATE)))
    known.read(log_of(UpdateRecord(KEY, 1, 5, 12, 1, (Batch(14, 14, ACKNOWLEDGED, 1),)), SnapshotRecord(GONE, None)))
    known.read(log_of(UpdateRecord(KEY, 1, 6, -1, 2, (Batch(16, 17, ACKNOWLEDGED, 1),))))
    head = BackupHead("__share_group_state", uuid.UUID(int=9), 0, 1, 3, 0, 5)
    stored = StoredStates()
    load(parse_backup(encode_backup(head, known.records, now_ms=0))[1], replaying(decode_record, stored))
    batches = (Batch(14, 14, ACKNOWLEDGED, 1), Batch(16, 17, ACKNOWLEDGED, 1))
    wanted = replace(STATE, leader_epoch=NOBODY, start_offset=12, delivery_complete_count=2, batches=batches)
    assert stored.states == {KEY: wanted}
