"""The records of `__share_group_state` (KIP-932): a snapshot of a partition of a share group, and updates on top of it.

Types of keys: 0 ShareSnapshot, 1 ShareUpdate.
"""

from __future__ import annotations

from appliance.base.ids import ZERO_UUID
from appliance.wire.schema import Struct, field
from appliance.wire.types import Int8, Int16, Int32, Int64, String, Uuid


class ShareSnapshotKey(Struct, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class StateBatch(Struct):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class ShareSnapshotValue(Struct, versions=(0, 0), flexible_from=0):
    snapshot_epoch: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64 = 0
    write_timestamp: Int64 = 0
    state_batches: list[StateBatch] = field()


class ShareUpdateKey(Struct, versions=(0, 0)):
    group_id: String = ""
    topic_id: Uuid = ZERO_UUID
    partition: Int32 = 0


class ShareUpdateValue(Struct, versions=(0, 0), flexible_from=0):
    snapshot_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = field()
