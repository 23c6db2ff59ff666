"""The records of `__consumer_offsets`.

A key is an int16 record type and the key message in version 0: 0 and 1 OffsetCommitKey, 2 GroupMetadataKey. A value is
an int16 version and the value message in that version; no value (a tombstone) deletes what the key names.

OffsetCommitValue: v1 expiry, v2 without it · v3 leader epoch · v4 flexible, topic id in a tagged field
GroupMetadataValue: v1 rebalance timeout · v2 time of the last change · v3 static members (KIP-345) · v4 flexible
"""

from __future__ import annotations

from appliance.wire.schema import Struct, field
from appliance.wire.types import Bytes, Int32, Int64, String, Uuid


class OffsetCommitKey(Struct, versions=(0, 0)):
    group: String = ""
    topic: String = ""
    partition: Int32 = 0


class OffsetCommitValue(Struct, versions=(0, 4), flexible_from=4):
    offset: Int64 = 0
    leader_epoch: Int32 = field(since=3, default=-1, ignorable=True)
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Int64 = field(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = field(since=4, tag=0, ignorable=True)


class GroupMetadataKey(Struct, versions=(0, 0)):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: String | None = field(since=3, default=None, ignorable=True)
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Int32 = field(since=1, default=-1, ignorable=True)
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Struct, versions=(0, 4), flexible_from=4):
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = ""
    leader: String | None = ""
    current_state_timestamp: Int64 = field(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = field()
