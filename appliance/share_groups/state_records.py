"""Records of `__share_group_state` as bytes, in Kafka's formats.

```
key    int16 kind (0 snapshot, 1 update), group id, topic id, int32 partition
value  int16 version (0), then the value message in that version; a snapshot without value ends the state
```
"""

from __future__ import annotations

import struct

from appliance.share_groups.state_stored import (
    Batch,
    PartitionState,
    SnapshotRecord,
    StateKey,
    StateRecord,
    UpdateRecord,
)
from appliance.wire.codec import decode, encode
from appliance.wire.messages.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from appliance.wire.schema import WireError

SNAPSHOT_KIND, UPDATE_KIND = 0, 1
_INT16 = struct.Struct(">h")
_VERSION_0 = _INT16.pack(0)


def encode_record(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    group_id, topic_id, partition = record.key
    if isinstance(record, SnapshotRecord):
        snapshot_key = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
        key = _INT16.pack(SNAPSHOT_KIND) + encode(snapshot_key, 0)
        return key, None if record.state is None else _VERSION_0 + encode(_of_state(record.state), 0)
    update_key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
    update = ShareUpdateValue(
        snapshot_epoch=record.snapshot_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        state_batches=_rows(record.batches),
    )
    return _INT16.pack(UPDATE_KIND) + encode(update_key, 0), _VERSION_0 + encode(update, 0)


def decode_record(key: bytes, value: bytes | None) -> StateRecord | None:
    """Read a record; None if it is of a kind that we do not know.

    Raises:
        WireError: it is of a known kind, but cannot be read.
    """
    kind = _INT16.unpack_from(key)[0] if len(key) >= 2 else -1
    if value is not None and value[:2] != _VERSION_0:
        raise WireError("a state of an unknown version")
    if kind == SNAPSHOT_KIND:
        read = decode(ShareSnapshotKey, memoryview(key)[2:], 0)
        state = None if value is None else _state(decode(ShareSnapshotValue, memoryview(value)[2:], 0))
        return SnapshotRecord(StateKey(read.group_id, read.topic_id, read.partition), state)
    if kind == UPDATE_KIND and value is not None:
        of = decode(ShareUpdateKey, memoryview(key)[2:], 0)
        update = decode(ShareUpdateValue, memoryview(value)[2:], 0)
        return UpdateRecord(
            StateKey(of.group_id, of.topic_id, of.partition),
            update.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            _batches(update.state_batches),
        )
    return None


def _of_state(state: PartitionState) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_rows(state.batches),
    )


def _state(value: ShareSnapshotValue) -> PartitionState:
    return PartitionState(
        value.state_epoch,
        value.start_offset,
        value.leader_epoch,
        value.snapshot_epoch,
        value.delivery_complete_count,
        _batches(value.state_batches),
        value.create_timestamp,
        value.write_timestamp,
    )


def _rows(batches: tuple[Batch, ...]) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _batches(rows: list[StateBatch]) -> tuple[Batch, ...]:
    return tuple(Batch(row.first_offset, row.last_offset, row.delivery_state, row.delivery_count) for row in rows)
